"""What Dask itself knows of a run: recorded on the guests, asked for by the workload, kept as tables."""

from dasklab.records.read import Frames, is_record, load, recorded

__all__ = ["Frames", "is_record", "load", "recorded"]
