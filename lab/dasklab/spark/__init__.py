"""Spark in place of Dask on the same hosts. Imported only where an experiment asks for it.

Its scripts run on the guests, so they lie beside the other workloads (``workloads/_spark*.py``). Role spark
installs it.
"""
