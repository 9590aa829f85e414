"""A cause for each second of each thread."""
