"""What does the network do to a Dask cluster? The lab that answers."""
