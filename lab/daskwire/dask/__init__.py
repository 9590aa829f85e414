"""From streams of bytes to what Dask said."""
