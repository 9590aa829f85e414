"""What does the network do to a Dask cluster? Record, explain, predict; or measure in a lab."""
