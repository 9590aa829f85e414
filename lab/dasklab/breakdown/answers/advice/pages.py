"""The pages of documentation that advice refers to; each page and each section was looked up."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

DASK, DISTRIBUTED = "https://docs.dask.org/en/stable", "https://distributed.dask.org/en/stable"

# what to compute
LOAD_DATA = f"{DASK}/best-practices.html#load-data-with-dask"
LARGE_GRAPHS = f"{DASK}/best-practices.html#avoid-very-large-graphs"
REPEATED_COMPUTE = f"{DASK}/best-practices.html#avoid-calling-compute-repeatedly"
LARGER_TASKS = f"{DISTRIBUTED}/efficiency.html#use-larger-tasks"
PRIORITIES = f"{DISTRIBUTED}/priority.html"
PRIMITIVES = f"{DASK}/futures.html#coordination-primitives"
TASKS_FROM_TASKS = f"{DISTRIBUTED}/task-launch.html"
INITIALIZATION = f"{DASK}/customize-initialization.html"
# collections
CHUNK_SIZES = f"{DASK}/array-best-practices.html#select-a-good-chunk-size"
RECHUNK = f"{DASK}/generated/dask.array.rechunk.html"
GROUPBY = f"{DASK}/generated/dask.dataframe.api.GroupBy.aggregate.html"
SHUFFLE = f"{DASK}/dataframe-groupby.html"
XARRAY_FILES = "https://docs.xarray.dev/en/stable/generated/xarray.open_mfdataset.html"
# data
LEAVE_DATA = f"{DISTRIBUTED}/efficiency.html#leave-data-on-the-cluster"
LOCALITY = f"{DISTRIBUTED}/locality.html"
RESTRICTIONS = f"{DISTRIBUTED}/locality.html#user-control"
SCATTER = f"{DISTRIBUTED}/locality.html#data-scatter"
SERIALIZATION = f"{DISTRIBUTED}/serialization.html"
INTERFACES = f"{DASK}/deploying-hpc.html"
# processes
THREADS_OR_PROCESSES = f"{DISTRIBUTED}/efficiency.html#adjust-between-threads-and-processes"
OVERSUBSCRIPTION = f"{DASK}/array-best-practices.html#avoid-oversubscribing-threads"
MEMORY = f"{DISTRIBUTED}/worker-memory.html"
UNMANAGED = f"{DISTRIBUTED}/worker-memory.html#memory-not-released-back-to-the-os"
QUEUING = f"{DISTRIBUTED}/scheduling-policies.html#queuing"
# workers
ADAPTIVE = f"{DASK}/adaptive.html"
DEAD_WORKERS = f"{DISTRIBUTED}/killed.html"
ERRORS = f"{DISTRIBUTED}/resilience.html#user-code-failures"
GARBAGE = "https://docs.python.org/3/library/gc.html"
NONE = ""
"""Dask's documentation has no page about it."""

OWNERS = {"docs.python.org": "Python", "docs.xarray.dev": "Xarray"}  # by site; all others are Dask's


def page_name(page: str) -> str:
    """Return a link's text: ``Dask's documentation: use larger tasks``."""
    url = urlsplit(page)
    name = url.fragment or PurePosixPath(url.path).stem
    return (
        f"{OWNERS.get(url.netloc, 'Dask')}'s documentation: {name if '.' in name else name.replace('-', ' ')}"
    )
