"""The real Dask in virtual time over a modelled network. See docs/explanation/simulation.md."""
