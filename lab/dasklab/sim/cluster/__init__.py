"""The real Dask in virtual time. Import it inside ``virtual_time`` only: Dask keeps the clock it imports."""
