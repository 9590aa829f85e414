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
    CAPTURE_RECORD_FOLDER,
    RECORD_DOCUMENT,
    RECORD_FOLDER,
    Attempt,
    CaptureReport,
    Configured,
    Failed,
    Hosts,
    Measured,
    ObservedFaults,
    Result,
    Simulation,
    Timings,
)
from dasklab.model.forms.document import Document
from dasklab.results.storage.documents import exists, read, require

DOCUMENTS: tuple[type[Document], ...] = (
    *(RequestedTrial, Attempt, Result, Timings, Measured, Configured),
    *(Hosts, ObservedFaults, Failed, CaptureReport, Simulation),
)
RECORDS = tuple(f"{folder}/{RECORD_DOCUMENT}" for folder in (RECORD_FOLDER, CAPTURE_RECORD_FOLDER))
MEASURED_STATUSES = ("ok", "invalid")

Signature = tuple[tuple[str, int, int], ...]


def left(directory: Path) -> tuple[str, ...]:
    """Return the names of the documents that a trial has left, for its attempt.json."""
    documents = tuple(kind.FILE for kind in DOCUMENTS if exists(kind, directory))
    return documents + tuple(name for name in RECORDS if (directory / name).exists())


def damage(directory: Path) -> str | None:
    """Return what is wrong with the documents of a finished trial, naming the file; None if nothing is."""
    return _damage(directory, _signature(directory))


def gaps(directory: Path) -> list[str]:
    """Return a line for each file that an undamaged trial lacks, apart from its documents."""
    files = require(Attempt, directory).files
    records = [
        f"{directory / name}: the file is missing; its time cannot be explained"
        for name in RECORDS
        if name in files and not (directory / name).exists()
    ]
    captures = [
        f"{line}; the trial's timings are used, but its capture is incomplete"
        for line in capture_gaps(directory)
    ]
    return records + captures


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
    attempt = documents[Attempt]
    files = {RequestedTrial.FILE, Attempt.FILE, Result.FILE}
    if isinstance(attempt, Attempt):
        files |= set(attempt.files)
    if has_result:
        files.add(Timings.FILE)
    return files
