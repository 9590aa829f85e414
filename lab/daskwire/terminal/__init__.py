"""The command `wire`: arguments, and how answers look."""
