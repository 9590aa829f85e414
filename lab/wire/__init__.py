"""From a capture file to what Dask said: file -> net -> dask -> tables. Knows nothing of labs.

from lab import wire
capture = wire.open_capture("capture.pcap")
print(wire.summarise(capture))
tasks = wire.to_pandas(capture.table("tasks"))
"""

from lab.wire.capture import Capture
from lab.wire.errors import WireError
from lab.wire.opening import open_capture
from lab.wire.schema import TABLES
from lab.wire.tables.completeness import completeness
from lab.wire.tables.export import rows, to_pandas, write_parquet
from lab.wire.tables.summary import summarise

__all__ = [
    "TABLES",
    "Capture",
    "WireError",
    "completeness",
    "open_capture",
    "rows",
    "summarise",
    "to_pandas",
    "write_parquet",
]
