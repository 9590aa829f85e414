"""Decode Dask messages from packet captures: ``base`` -> ``decoder`` -> ``analysis`` -> ``terminal``.

    import daskwire
    capture = daskwire.open_capture("capture.pcap")
    print(daskwire.summarise(capture))
    tasks = daskwire.to_pandas(capture.table("tasks"))

The package knows nothing of the lab.
"""

from daskwire.analysis.opening import open_capture
from daskwire.analysis.tables.completeness import completeness
from daskwire.analysis.tables.export import rows, to_pandas, write_annotated, write_parquet
from daskwire.analysis.tables.summary import summarise
from daskwire.base.errors import WireError
from daskwire.base.schema import TABLES
from daskwire.decoder.capture import Capture

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
