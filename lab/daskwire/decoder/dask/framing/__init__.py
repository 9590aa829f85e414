"""Split a byte stream into Dask messages, and decode their bodies."""
