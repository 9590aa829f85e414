"""What Dask recorded of timed and of captured repeats: a folder each, in earlier trials a file each."""

from __future__ import annotations

from typing import ClassVar

from dasklab.model.forms.document import Document

RECORD_FOLDER = "record"
CAPTURE_RECORD_FOLDER = "capture-record"
RECORD_DOCUMENT = "record.json"  # in such a folder; ``dasklab.records.document`` has its content


class Records(Document):
    """What an earlier trial recorded of its timed repeats: JSON, compressed, in base 64."""

    FILE: ClassVar[str] = "records.json"
    PREVIOUS_FILE: ClassVar[str] = "inside.json"
    FOLDER: ClassVar[str] = RECORD_FOLDER  # what takes its place

    records: str


class CaptureRecords(Records):
    """What it recorded of its captured repeats."""

    FILE: ClassVar[str] = "capture-records.json"
    PREVIOUS_FILE: ClassVar[str] = "inside-capture.json"
    FOLDER: ClassVar[str] = CAPTURE_RECORD_FOLDER
