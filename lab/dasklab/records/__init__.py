"""What Dask itself knows about a run: recorded in its processes, collected, stored as tables."""

from dasklab.records.read import Frames, is_record, load, recorded

__all__ = ["Frames", "is_record", "load", "recorded"]
