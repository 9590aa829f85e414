"""The real Dask in virtual time. Import within ``virtual_time`` only: Dask keeps the clock it finds."""
