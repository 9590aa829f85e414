"""Selected results per version of Dask, and the regressions between versions."""
