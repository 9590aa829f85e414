"""From a capture file to what Dask said: pcap -> tcp -> comm -> ops. Knows nothing of labs.

from lab import wire
capture = wire.open_capture("capture.pcap")
print(wire.summarise(capture))
tasks = wire.to_pandas(capture.table("tasks"))
"""

from lab.wire.capture import Capture, open_capture
from lab.wire.errors import WireError
from lab.wire.export import rows, to_pandas, write_parquet
from lab.wire.schema import TABLES
from lab.wire.summary import summarise

__all__ = [
    "TABLES",
    "Capture",
    "WireError",
    "open_capture",
    "rows",
    "summarise",
    "to_pandas",
    "write_parquet",
]
