"""From capture files to Dask messages: ``file`` -> ``net`` -> ``dask`` -> ``capture``."""
