"""Whether a finished trial is complete. A damaged or missing file takes its own trial out, and no other.

A trial whose documents cannot all be read, or that lost one, leaves the statistics: half of a trial must not
count as valid. What is missing beside the documents (a capture, Dask's own records) is reported, and the
timings stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import (
    RECORD_DOCUMENT,
    Attempt,
    CaptureRecords,
    CaptureReport,
    Configured,
    Failed,
    Hosts,
    Measured,
    ObservedFaults,
    Records,
    Result,
    Simulation,
    Timings,
)
from dasklab.model.forms.document import Document
from dasklab.results.storage.documents import exists, file_of, read, require

DOCUMENTS: tuple[type[Document], ...] = (
    *(RequestedTrial, Attempt, Result, Timings, Measured, Configured),
    *(Hosts, ObservedFaults, Failed, CaptureReport, Simulation),
)
RECORDS: tuple[type[Records], ...] = (Records, CaptureRecords)  # large: checked by their reader
MEASURED_STATUSES = ("ok", "invalid")

Signature = tuple[tuple[str, int, int], ...]


def left(directory: Path) -> tuple[str, ...]:
    """Return the names of the documents that a trial has left, for its attempt.json."""
    documents = tuple(kind.FILE for kind in DOCUMENTS + RECORDS if exists(kind, directory))
    records = tuple(_record(kind) for kind in RECORDS if (directory / _record(kind)).exists())
    return documents + records


def damage(directory: Path) -> str | None:
    """Return what is wrong with the documents of a finished trial, naming the file; None if nothing is."""
    return _damage(directory, _signature(directory))


def gaps(directory: Path) -> list[str]:
    """Return a line for each file that an undamaged trial lacks, apart from its documents."""
    files = require(Attempt, directory).files
    records = [
        f"{directory / name}: the file is missing; its time cannot be explained"
        for kind in RECORDS
        if not exists(kind, directory) and not (directory / _record(kind)).exists()
        for name in _had(directory, kind, files)
    ]
    captures = [
        f"{line}; the trial's timings are used, but its capture is incomplete"
        for line in capture_gaps(directory)
    ]
    return records + captures


def _had(directory: Path, kind: type[Records], files: tuple[str, ...]) -> list[str]:
    """Return the names of the records of this kind that a trial had. The tables made of them show it, too."""
    names = [name for name in (_record(kind), kind.FILE) if name in files]
    return names or ([kind.FILE] if file_of(kind, directory).with_suffix("").is_dir() else [])


def _record(kind: type[Records]) -> str:
    """Return the path of a record's document within a trial."""
    return f"{kind.FOLDER}/{RECORD_DOCUMENT}"


def capture_gaps(directory: Path) -> list[str]:
    """Return a line for each file of a trial's capture that is missing or has lost bytes."""
    report = read(CaptureReport, directory)
    tiers = [tier for tier in report.tiers if tier.file] if report else []
    lines = (_gap(directory / tier.file, tier.bytes) for tier in tiers)
    return [line for line in lines if line]


def _gap(path: Path, size: int) -> str | None:
    if not path.is_file():
        return f"{path}: the file is missing"
    now = path.stat().st_size
    return f"{path}: {now:,} bytes are left of {size:,}" if now != size else None


def _signature(directory: Path) -> Signature:
    """Return what changes when a file of the directory changes."""
    with os.scandir(directory) as entries:
        stats = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".json")]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


@lru_cache(maxsize=4096)
def _damage(directory: Path, signature: Signature) -> str | None:
    try:
        documents = {kind: read(kind, directory) for kind in DOCUMENTS}
    except LabError as error:
        return error.message
    return next(_problems(directory, documents), None)


def _problems(directory: Path, documents: Mapping[type[Document], Document | None]) -> Iterator[str]:
    timings, result, trial = documents[Timings], documents[Result], documents[RequestedTrial]
    has_result = isinstance(result, Result) and result.status in MEASURED_STATUSES
    if has_result and isinstance(timings, Timings) and not timings.timed:
        yield f"{directory / Timings.FILE}: it holds no timed repeat, though the trial has a result"
    expected = _expected(documents, has_result)
    for kind, document in documents.items():
        if kind.FILE in expected and document is None:
            yield f"{directory / kind.FILE}: the file is missing"
    if isinstance(trial, RequestedTrial) and isinstance(result, Result) and trial.trial != result.trial:
        yield f"{directory}: {RequestedTrial.FILE} is of {trial.trial}, {Result.FILE} of {result.trial}"


def _expected(documents: Mapping[type[Document], Document | None], has_result: bool) -> set[str]:
    """Return the names of the documents that a trial must have."""
    attempt, trial = documents[Attempt], documents[RequestedTrial]
    files = {RequestedTrial.FILE, Attempt.FILE, Result.FILE}
    if isinstance(attempt, Attempt):
        files |= set(attempt.files)
    if has_result:
        files.add(Timings.FILE)
        if isinstance(attempt, Attempt) and not attempt.files and documents[Simulation] is None:
            # early versions did not write down what a trial left
            files |= {kind.FILE for kind in (Measured, Configured, Hosts)}
            if isinstance(trial, RequestedTrial) and trial.capture:
                files.add(CaptureReport.FILE)
    return files
