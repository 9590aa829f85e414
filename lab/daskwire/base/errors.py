"""The decoder's exceptions. Whatever a capture file contains, nothing else is raised."""

from __future__ import annotations


class WireError(Exception):
    """A capture cannot be read, or a table cannot be written. The message is one line."""


class ArgumentError(WireError):
    """An argument of a command is invalid. The message is one line."""
