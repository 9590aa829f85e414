"""The file that describes a record."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

RECORD = "record.chunks"  # what the processes recorded, beside this file


class Record(BaseModel):
    """When it was recorded, and what is missing.

    Attributes:
        client: the id of the client that recorded; others may have used the cluster meanwhile.
        lost: rows that each process dropped because its memory was full.
        failures: how often hooks of the recorder failed, by process and reason.
        complete: whether everything was fetched until the recorder detached; None (unknown) in records that
            were written before this field existed.
        complete_until: until when nothing is missing; None if unknown.
        beyond_limit: rows that were counted but not written, by table, because the record had reached the
            size that the user set.
        keys: ``plain``, or ``hash`` if hashes are stored instead of keys and names; empty if unknown.
        code: whether lines of code and paths are stored; None if unknown.
    """

    FILE: ClassVar[str] = "record.json"

    form: int
    client: str
    start: float
    stop: float
    lost: dict[str, int]
    failures: dict[str, int]
    complete: bool | None = None
    complete_until: float | None = None
    beyond_limit: dict[str, int] = {}
    keys: str = ""
    code: bool | None = None
