"""The endpoint of an instance: set up, start, serve, watch, stop, check."""
