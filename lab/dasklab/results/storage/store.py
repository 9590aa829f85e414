"""Where the files of a run are, and which of its trials are complete enough to be read.

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
from dasklab.model.trial import RequestedTrial
from dasklab.notices import warn
from dasklab.results.storage.damage import damage, gaps
from dasklab.results.storage.documents import exists, file_of, need, read, read_file, write

__all__ = ["exists", "file_of", "need", "read", "read_file", "write"]

T = TypeVar("T")


def find(path: Path) -> list[Path]:
    """Return the runs at or below ``path``, oldest first. Runs that cannot be read are reported and left out.

    Raises:
        LabError: there is no run that can be read.
    """
    runs = sorted((p.parent for p in path.glob(f"**/{Campaign.FILE}")), key=lambda run: run.name)
    for incomplete in sorted({p.parent.parent for p in path.glob(f"*/**/{RequestedTrial.FILE}")} - set(runs)):
        warn(f"{incomplete / Campaign.FILE}: the file is missing; the run is left out")
    runs = [run for run, _ in for_each_run(runs, read_run)]
    if not runs:
        raise LabError(
            f"{path}: no results here", "`dasklab run` makes some, `--results DIR` looks elsewhere"
        )
    return runs


def for_each_run(
    runs: Iterable[Path], function: Callable[[Path], T], *, strict: bool = True
) -> Iterator[tuple[Path, T]]:
    """Yield each run with the result of ``function``. Runs for which it fails are reported and left out.

    Raises:
        LabError: ``strict``, and it fails for all of them; the first failure is raised.
    """
    failures: list[LabError] = []
    successes = 0
    for run in runs:
        try:
            result = function(run)
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
    """Return what a run started with.

    Raises:
        LabError: this is not the directory of a run, or it names trials outside of it.
    """
    campaign = read(Campaign, run)
    if campaign is None:
        raise LabError(f"{run}: this is not a run's directory, it has no {Campaign.FILE}")
    if outside := [name for name in campaign.order if Path(name).name != name]:
        raise LabError(f"{run / Campaign.FILE}: trial {outside[0]!r} leads out of the run")
    return campaign


def experiment(run: Campaign) -> Experiment:
    """Return the experiment that a run measures."""
    return validate(Experiment, run.experiment, f"{run.name}, {Campaign.FILE}, experiment")


def finished(run: Path) -> list[Path]:
    """Return the directories of the judged, undamaged trials in the order they ran.

    Damaged trials are reported and left out. What an undamaged trial lacks is reported too.
    """
    complete = []
    for directory in having(run, Attempt, Result):
        if reason := damage(directory):
            warn(f"{reason}; the trial is left out (to run it again: dasklab run {run} --again)")
            continue
        for gap in gaps(directory):
            warn(gap)
        complete.append(directory)
    return complete


def check(directory: Path) -> None:
    """Refuse a damaged trial that the user named. An unfinished trial may lack files.

    Raises:
        LabError: a file is damaged or missing; it is named.
    """
    if not ((directory / Attempt.FILE).exists() or (directory / Result.FILE).exists()):
        return
    if reason := damage(directory):
        raise LabError(reason)
    for gap in gaps(directory):
        warn(gap)


def having(run: Path, *kinds: type[Document]) -> list[Path]:
    """Return the directories of the trials with a document of one of these kinds, in the order they ran."""
    directories = [run / name for name in read_run(run).order]
    return [path for path in directories if any(exists(kind, path) for kind in kinds)]


def read_steadily(run: Path, read: Callable[[], T], pause_s: float = 0.5) -> T:
    """Return ``read()`` of a run's files, repeated if `dasklab run RUN` replaced a trial at the same time."""
    while True:
        before = having(run, Result)
        try:
            return read()
        except (LabError, OSError):
            time.sleep(pause_s)  # a trial's folder is removed file by file
            if having(run, Result) == before:
                raise


def attempts(run: Path) -> list[Attempt]:
    """Return the driver's notes of each finished trial."""
    return [need(Attempt, directory) for directory in finished(run)]


def measuring_s(directory: Path) -> float:
    """Return the seconds of a trial that were spent measuring: runs, warm-ups, pings and throughput probes.

    Hosts ping at the same time, each of them one target after the other.
    """
    timings, measured = read(Timings, directory), read(Measured, directory) or Measured()
    runs_s = sum(sample.duration_s for sample in timings.samples) if timings else 0
    pings: dict[tuple[str, str], int] = {}
    for probe in measured.rtt:
        pings[probe.phase, probe.src] = pings.get((probe.phase, probe.src), 0) + len(probe.samples_ms)
    most_pings: dict[str, int] = {}
    for (phase, _), count in pings.items():
        most_pings[phase] = max(most_pings.get(phase, 0), count)
    pings_s = need(RequestedTrial, directory).probes.interval_s * sum(most_pings.values())
    return runs_s + pings_s + sum(probe.seconds for probe in measured.throughput)
