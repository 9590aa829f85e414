"""Parse byte streams into Dask messages."""
