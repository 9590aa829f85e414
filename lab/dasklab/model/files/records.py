"""records.json and capture-records.json: what Dask recorded of the timed and of the captured runs."""

from __future__ import annotations

from typing import ClassVar

from dasklab.model.document import Document


class Records(Document):
    """What scheduler and workers recorded of the timed runs: JSON, compressed, in base 64."""

    FILE: ClassVar[str] = "records.json"
    PREVIOUS_FILE: ClassVar[str] = "inside.json"

    records: str


class CaptureRecords(Records):
    """What they recorded of the captured runs."""

    FILE: ClassVar[str] = "capture-records.json"
    PREVIOUS_FILE: ClassVar[str] = "inside-capture.json"
