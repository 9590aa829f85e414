"""Where a run's files are, and how each is read and written: typed, whole, or refused in one line.

``results/<experiment>/<time>/`` holds ``experiment.json``, one directory per trial and ``samples.parquet``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lab.errors import LabError
from lab.model.document import SCHEMA, Document
from lab.model.experiment import Experiment
from lab.model.files import Attempt, Campaign, Delivered, Result, Timings
from lab.model.strict import validate
from lab.model.trial import Trial

D = TypeVar("D", bound=Document)
T = TypeVar("T")


def read(kind: type[D], directory: Path) -> D | None:
    """The document of this kind in a directory; None if there is none.

    Raises:
        LabError: the file is not JSON, of another version of the lab, or not what it should be.
    """
    path = directory / kind.FILE
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise LabError(f"{path}: not JSON: {error}") from error
    version = found.get("schema") if isinstance(found, dict) else None
    if version != SCHEMA:
        raise LabError(f"{path}: schema {version}, this version of the lab reads {SCHEMA}")
    return validate(kind, found, str(path))


def need(kind: type[D], directory: Path) -> D:
    """The document of this kind, which must be there."""
    document = read(kind, directory)
    if document is None:
        raise LabError(f"{directory}: it has no {kind.FILE}")
    return document


def write(directory: Path, document: Document) -> None:
    """Write at once or not at all, so that a killed driver leaves no half file."""
    path = directory / document.FILE
    draft = path.with_suffix(".draft")
    draft.write_text(document.text())
    draft.replace(path)


def find(path: Path) -> list[Path]:
    """The runs at or below ``path``, oldest first."""
    runs = sorted((p.parent for p in path.glob(f"**/{Campaign.FILE}")), key=lambda run: run.name)
    if not runs:
        raise LabError(f"{path}: no results there", "`dasklab run` makes some, `--results DIR` finds others")
    return runs


def read_run(run: Path) -> Campaign:
    """What a run's directory was begun with."""
    document = read(Campaign, run)
    if document is None:
        raise LabError(f"{run}: this is not a run's directory, it has no {Campaign.FILE}")
    return document


def experiment(run: Campaign) -> Experiment:
    """What a run measures."""
    return validate(Experiment, run.experiment, f"{run.name}, {Campaign.FILE}, experiment")


def finished(run: Path) -> list[Path]:
    """The directories of the trials that were attempted to the end and judged, in the order they ran."""
    return having(run, Result)


def read_steadily(run: Path, read: Callable[[], T], pause_s: float = 0.5) -> T:
    """Return ``read()`` of a run's files; repeated if `dasklab run RUN` replaced a trial meanwhile."""
    while True:
        before = finished(run)
        try:
            return read()
        except (LabError, OSError):
            time.sleep(pause_s)  # a trial's folder is removed file by file
            if finished(run) == before:
                raise


def having(run: Path, kind: type[Document]) -> list[Path]:
    """The directories of the trials that have a document of this kind, in the order they ran."""
    return [run / name for name in read_run(run).order if (run / name / kind.FILE).exists()]


def attempts(run: Path) -> list[Attempt]:
    """What the driver saw of each finished trial."""
    return [need(Attempt, directory) for directory in finished(run)]


def measuring_s(directory: Path) -> float:
    """Seconds of a trial that were spent on measuring: runs, warm-ups, pings and throughput probes.

    Hosts ping at the same time, each one target after the other.
    """
    timings, delivered = read(Timings, directory), read(Delivered, directory) or Delivered()
    runs = sum(sample.duration_s for sample in timings.samples) if timings else 0
    pings: dict[tuple[str, str], int] = {}
    for probe in delivered.rtt:
        pings[probe.phase, probe.src] = pings.get((probe.phase, probe.src), 0) + len(probe.samples_ms)
    longest: dict[str, int] = {}
    for (phase, _), count in pings.items():
        longest[phase] = max(longest.get(phase, 0), count)
    waited = need(Trial, directory).probes.interval_s * sum(longest.values())
    return runs + waited + sum(probe.seconds for probe in delivered.throughput)
