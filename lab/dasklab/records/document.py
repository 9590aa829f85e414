"""The file that describes a record. Guests write it, which have the standard library and Dask only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dasklab import atomic
from dasklab.errors import DamagedError, LabError
from dasklab.records import chunk_file
from dasklab.records.recorder.privacy import Privacy, hash_key

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_TIME_S = 7_258_118_400.0  # the year 2200, beyond all clocks
RECORD = "record.chunks"  # what the processes recorded, beside this file


@dataclass(frozen=True)
class RecordedRepeat:
    """A timed computation or a warm-up of a trial. Chunks of the record name the repeat that they belong to.

    Attributes:
        start, stop: seconds since 1970 by the client's clock.
        lost: number of processes that dropped rows in it because their memory was full.
    """

    number: int
    warmup: bool
    start: float
    stop: float
    lost: int = 0


@dataclass(frozen=True)
class Record:
    """When it was recorded, and what is missing.

    Attributes:
        client: the id of the client that recorded; others may have used the cluster meanwhile.
        start, stop: when the user's block was entered and left, by the client's clock. While it lasts, and
            if it was never left, ``stop`` is when this was written.
        watches: whether the work of other programs was recorded, as ``dasklab record`` does, and not that of
            the recording client; None if unknown.
        lost: rows that each process dropped because its memory was full.
        failures: how often hooks of the recorder failed, by process and reason.
        complete: whether everything was fetched until the recorder detached; None (unknown) in records that
            were written before this field existed.
        complete_until: until when nothing is missing; None if unknown.
        beyond_limit: rows that were counted but not written, by table, because the record had reached the
            size that the user set.
        keys: ``plain``, or ``hash`` if hashes are stored instead of keys and names; empty if unknown.
        code: whether lines of code and paths are stored; None if unknown.
        chunks_bytes: size of ``record.chunks`` when this was written; it only grows. None if unknown.
        repeats: those of a trial, in their order; empty in the record of a cluster.
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
    beyond_limit: dict[str, int] = field(default_factory=dict)
    keys: str = ""
    code: bool | None = None
    watches: bool | None = None
    chunks_bytes: int | None = None
    repeats: tuple[RecordedRepeat, ...] = ()

    def concealed(self, privacy: Privacy) -> Record:
        """Return the same without what must not be stored."""
        return replace(
            self,
            client=hash_key(self.client) if privacy.hashed else self.client,
            failures=privacy.failures(self.failures),
            keys="hash" if privacy.hashed else self.keys,
            code=self.code if privacy.code else False,
        )

    def write(self, folder: Path) -> None:
        """Replace the file in a record's folder."""
        atomic.write_text(folder / self.FILE, json.dumps(asdict(self), indent=1) + "\n")


def read_document(folder: Path) -> Record:
    """Return what a cluster's record says of itself. A record whose chunks were cut off is not complete.

    Raises:
        LabError: one of the record's files is damaged or missing.
    """
    from pydantic import ValidationError  # here: those who only write lack it

    file, chunks = folder / Record.FILE, folder / RECORD
    try:
        record = _adapter().validate_json(file.read_bytes())
    except ValidationError as error:
        mistake = error.errors()[0]
        where = "".join(f"{name}: " for name in mistake["loc"])
        raise DamagedError(f"{file}: damaged: {where}{mistake['msg']}") from None
    moments = (record.start, record.stop, record.complete_until or 0.0)
    for moment in (*moments, *(end for repeat in record.repeats for end in (repeat.start, repeat.stop))):
        if not 0 <= moment <= MAX_TIME_S:
            raise DamagedError(f"{file}: damaged: {moment:g} is no time")
    if not chunks.exists():
        raise LabError(f"{chunks} is missing: {folder} holds no record without it")
    if not _is_cut_off(chunks, record.chunks_bytes or 0):
        return record
    if record.complete:
        raise DamagedError(f"{chunks}: damaged: its end is missing", "copy the record again, or record again")
    return replace(record, complete=False, complete_until=None)


@cache
def _adapter() -> TypeAdapter[Record]:
    from pydantic import TypeAdapter

    return TypeAdapter(Record)


def _is_cut_off(chunks: Path, known_bytes: int) -> bool:
    try:
        return chunks.stat().st_size < known_bytes or chunk_file.is_cut_off(chunks)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedError(f"{chunks}: damaged: {error}") from error
