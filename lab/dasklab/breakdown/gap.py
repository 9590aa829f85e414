"""The sentence about what a record lacks."""

from __future__ import annotations

from datetime import datetime

from dasklab.records.document import Record


def gap(record: Record) -> str:
    """Say that a record is cut off, or may be; empty for a whole one."""
    if record.complete:
        return ""
    if record.complete is None:
        return "It is unknown whether this record is complete: an earlier version of dasklab wrote it."
    end = "reached its size limit" if record.beyond_limit else "was cut off"
    if record.complete_until is None:
        return f"The recording {end}. What follows is only the part that was kept."
    moment = datetime.fromtimestamp(record.complete_until).astimezone().isoformat(" ", "seconds")
    seconds = max(0.0, record.complete_until - record.start)
    return f"The recording {end} at {moment}, after {seconds:.1f} s. What follows is only that part."
