"""From a capture file to Dask messages: file -> net -> dask -> tables. Knows nothing of labs.

import daskwire
capture = daskwire.open_capture("capture.pcap")
print(daskwire.summarise(capture))
tasks = daskwire.to_pandas(capture.table("tasks"))
"""

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.opening import open_capture
from daskwire.schema import TABLES
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
    "write_parquet",
]
