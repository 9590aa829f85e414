"""Decode Dask messages from packet captures: ``file`` -> ``net`` -> ``dask`` -> ``tables``.

    import daskwire
    capture = daskwire.open_capture("capture.pcap")
    print(daskwire.summarise(capture))
    tasks = daskwire.to_pandas(capture.table("tasks"))

The package knows nothing of the lab.
"""

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.opening import open_capture
from daskwire.schema import TABLES
from daskwire.tables.annotated import write_annotated
from daskwire.tables.completeness import completeness
from daskwire.tables.export import rows, to_pandas, write_parquet
from daskwire.tables.summary import summarise

__all__ = [
    "TABLES",
    "Capture",
    "WireError",
    "completeness",
    "open_capture",
    "rows",
    "summarise",
    "to_pandas",
    "write_annotated",
    "write_parquet",
]
