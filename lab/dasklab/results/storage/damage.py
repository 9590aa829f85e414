"""Is a finished trial still whole? A file that is damaged or missing takes its own trial out, and no other.

A trial whose documents cannot all be read, or that lacks one that it had, leaves the statistics: half of it
must not be read as good. What is missing beside the documents (a capture, Dask's own records) is named, and
the timings stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.document import Document
from dasklab.model.files import (
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
from dasklab.model.trial import Trial
from dasklab.results.storage.documents import exists, file_of, need, read

DOCUMENTS: tuple[type[Document], ...] = (
    *(
        Trial,
        Attempt,
        Result,
        Timings,
        Measured,
        Configured,
        Hosts,
        ObservedFaults,
        Failed,
        CaptureReport,
        Simulation,
    ),
)
RECORDS: tuple[type[Document], ...] = (Records, CaptureRecords)  # large: checked by who reads them
MEASURED = ("ok", "invalid")

Signature = tuple[tuple[str, int, int], ...]


def left(directory: Path) -> tuple[str, ...]:
    """Return the names of the documents that a trial has left, for its attempt.json."""
    return tuple(kind.FILE for kind in (*DOCUMENTS, *RECORDS) if exists(kind, directory))


def damage(directory: Path) -> str | None:
    """Return what is wrong with a finished trial's documents, naming the file; None if nothing is."""
    return _damage(directory, _signature(directory))


def gaps(directory: Path) -> list[str]:
    """Return what an undamaged trial lacks beside its documents, a line for each file."""
    had = need(Attempt, directory).files
    lost = [kind.FILE for kind in RECORDS if not exists(kind, directory) and _had(directory, kind, had)]
    records = [f"{directory / name}: the file is missing; no time is explained by it" for name in lost]
    captures = [
        f"{line}; the trial's timings are used, its capture is not whole" for line in capture_gaps(directory)
    ]
    return records + captures


def _had(directory: Path, kind: type[Document], files: tuple[str, ...]) -> bool:
    """Did a trial have records of this kind? The tables that are made of them tell, too."""
    return kind.FILE in files or file_of(kind, directory).with_suffix("").is_dir()


def capture_gaps(directory: Path) -> list[str]:
    """Return which files of a trial's capture are missing or not of the size that they were captured with."""
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
    """What changes when a file of the directory does."""
    with os.scandir(directory) as entries:
        stats = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".json")]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats))


@lru_cache(maxsize=4096)
def _damage(directory: Path, signature: Signature) -> str | None:
    try:
        documents = {kind: read(kind, directory) for kind in DOCUMENTS}
    except LabError as error:
        return error.message
    return next(_missing(directory, documents), None)


def _missing(directory: Path, documents: dict[type[Document], Document | None]) -> Iterator[str]:
    attempt, result, timings = documents[Attempt], documents[Result], documents[Timings]
    trial = documents[Trial]
    named = {Trial.FILE, Attempt.FILE, Result.FILE}
    if isinstance(attempt, Attempt):
        named |= set(attempt.files)
    if isinstance(result, Result) and result.status in MEASURED:
        named.add(Timings.FILE)
        if isinstance(attempt, Attempt) and not attempt.files and documents[Simulation] is None:
            # an earlier version, which did not write the names down
            named |= {kind.FILE for kind in (Measured, Configured, Hosts)}
            if isinstance(trial, Trial) and trial.capture:
                named.add(CaptureReport.FILE)
        if isinstance(timings, Timings) and not timings.timed:
            yield f"{directory / Timings.FILE}: it holds no timed run, though the trial is {result.status}"
    for kind, document in documents.items():
        if kind.FILE in named and document is None:
            yield f"{directory / kind.FILE}: the file is missing"
    if isinstance(trial, Trial) and isinstance(result, Result) and trial.trial != result.trial:
        yield f"{directory}: {Trial.FILE} is of {trial.trial}, {Result.FILE} of {result.trial}"
