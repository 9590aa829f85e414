"""The real Dask in virtual time over a modelled network; believed only as far as it foretold trials."""
