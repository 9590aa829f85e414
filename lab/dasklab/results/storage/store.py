"""Where a run's files are, and which of its trials are whole enough to be read.

``results/<experiment>/<time>/`` holds ``experiment.json``, one directory per trial and ``samples.parquet``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from dasklab.errors import LabError
from dasklab.model.document import Document
from dasklab.model.experiment import Experiment
from dasklab.model.files import Attempt, Campaign, Measured, Result, Timings
from dasklab.model.strict import validate
from dasklab.model.trial import Trial
from dasklab.notices import warn
from dasklab.results.storage.damage import damage, gaps
from dasklab.results.storage.documents import exists, file_of, need, read, read_file, write

__all__ = ["exists", "file_of", "need", "read", "read_file", "write"]

T = TypeVar("T")


def find(path: Path) -> list[Path]:
    """Return the runs at or below ``path``, oldest first. One that cannot be read is named and left out.

    Raises:
        LabError: there is none that can be read.
    """
    runs = sorted((p.parent for p in path.glob(f"**/{Campaign.FILE}")), key=lambda run: run.name)
    for lost in sorted({p.parent.parent for p in path.glob(f"*/**/{Trial.FILE}")} - set(runs)):
        warn(f"{lost / Campaign.FILE}: the file is missing; the run is left out")
    runs = [run for run, _ in of_each(runs, read_run)]
    if not runs:
        raise LabError(f"{path}: no results there", "`dasklab run` makes some, `--results DIR` finds others")
    return runs


def of_each(
    runs: Iterable[Path], what: Callable[[Path], T], *, strict: bool = True
) -> Iterator[tuple[Path, T]]:
    """Yield each run with ``what`` of it. A run for which that fails is named and left out.

    Raises:
        LabError: ``strict``, and it fails for all of them; the first failure is raised.
    """
    failures: list[LabError] = []
    successes = 0
    for run in runs:
        try:
            result = what(run)
        except LabError as error:
            failures.append(error)
            continue
        successes += 1
        yield run, result
    if strict and failures and not successes:
        raise failures[0]
    for failure in failures:
        warn(f"{failure.message}; the run is left out")


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
    """Return the directories of the trials that were judged and are undamaged, in the order they ran.

    A damaged trial is named and left out; so is, by its name, what an undamaged one lacks.
    """
    whole = []
    for directory in having(run, Attempt, Result):
        if why := damage(directory):
            warn(f"{why}; the trial is left out (to run it again: dasklab run {run} --again)")
            continue
        for gap in gaps(directory):
            warn(gap)
        whole.append(directory)
    return whole


def check(directory: Path) -> None:
    """Refuse a damaged trial that the user named. Of an unfinished one nothing is expected.

    Raises:
        LabError: names the file.
    """
    finished = (directory / Attempt.FILE).exists() or (directory / Result.FILE).exists()
    if not finished:
        return
    if why := damage(directory):
        raise LabError(why)
    for gap in gaps(directory):
        warn(gap)


def having(run: Path, *kinds: type[Document]) -> list[Path]:
    """Return the directories of the trials with a document of one of these kinds, in the order they ran."""
    directories = [run / name for name in read_run(run).order]
    return [path for path in directories if any(exists(kind, path) for kind in kinds)]


def read_steadily(run: Path, read: Callable[[], T], pause_s: float = 0.5) -> T:
    """Return ``read()`` of a run's files; repeated if `dasklab run RUN` replaced a trial meanwhile."""
    while True:
        before = having(run, Result)
        try:
            return read()
        except (LabError, OSError):
            time.sleep(pause_s)  # a trial's folder is removed file by file
            if having(run, Result) == before:
                raise


def attempts(run: Path) -> list[Attempt]:
    """What the driver saw of each finished trial."""
    return [need(Attempt, directory) for directory in finished(run)]


def measuring_s(directory: Path) -> float:
    """Seconds of a trial that were spent on measuring: runs, warm-ups, pings and throughput probes.

    Hosts ping at the same time, each one target after the other.
    """
    timings, delivered = read(Timings, directory), read(Measured, directory) or Measured()
    runs = sum(sample.duration_s for sample in timings.samples) if timings else 0
    pings: dict[tuple[str, str], int] = {}
    for probe in delivered.rtt:
        pings[probe.phase, probe.src] = pings.get((probe.phase, probe.src), 0) + len(probe.samples_ms)
    longest: dict[str, int] = {}
    for (phase, _), count in pings.items():
        longest[phase] = max(longest.get(phase, 0), count)
    waited = need(Trial, directory).probes.interval_s * sum(longest.values())
    return runs + waited + sum(probe.seconds for probe in delivered.throughput)
