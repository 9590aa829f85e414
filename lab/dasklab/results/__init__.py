"""The files of a run: kept, judged, gathered into one table, compared. ``load`` is the way in."""

from dasklab.results.storage.table import load

__all__ = ["load"]
