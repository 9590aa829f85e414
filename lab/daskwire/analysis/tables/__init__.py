"""Build tables from a capture."""
