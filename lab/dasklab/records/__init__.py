"""What Dask itself knows about a run: recorded in its processes, collected, stored as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dasklab.records.read import Frames, load, load_record, reading, recorded, source_of, tables_of

__all__ = ["Frames", "load", "load_record", "reading", "recorded", "source_of", "tables_of"]


def __getattr__(name: str) -> Any:
    """Import the readers when they are needed: pandas takes 80 MB, and a recording does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dasklab.records import read

    return getattr(read, name)
