"""What Dask itself knows of a run: recorded on the guests, asked for by the workload, kept as tables."""

from dasklab.record.read import Frames, load, recorded

__all__ = ["Frames", "load", "recorded"]
