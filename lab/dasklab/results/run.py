"""Stored runs and trials as objects. A command opens a run once and passes it on.

A property reads its file when it is first used and keeps the value, so an object shows a run as it was then;
open the run again to see what changed. What cannot be read takes its own trial out of ``Run.trials`` and is
named in ``Run.damaged``: who uses the trials need not expect it.

Only this package reads the files of a run; what others get are documents, tables and captures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.files import (
    Attempt,
    Campaign,
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
from dasklab.model.files.records import RECORD_DOCUMENT
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import validate
from dasklab.model.settings.simulated import SimulatedSetup
from dasklab.notices import warn
from dasklab.paths import display_path
from dasklab.results import cached, pack, recording
from dasklab.results.recording import Recording
from dasklab.results.storage import damage as damages
from dasklab.results.storage import documents
from dasklab.terminal import counted

MOST_GAPS = 3  # files missing from a run that are named
D = TypeVar("D", bound=Document)
T = TypeVar("T")


class Trial:
    """A trial of a run, or a record of any cluster, which has none of a trial's documents.

    Documents that a trial may lack are None. ``requested``, ``attempt`` and ``result`` raise LabError where
    they are missing: every trial in ``Run.trials`` has them.
    """

    folder: Path
    """Where its files are: for those who write or read them. Messages name the trial itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        """Return where it is, as messages and commands name it."""
        return display_path(self.folder)

    @property
    def name(self) -> str:
        """Unique in its run: block, place in the block, cell."""
        return self.folder.name

    @cached_property
    def is_record(self) -> bool:
        """Whether this is the record of a cluster, and not a trial of the lab."""
        return (self.folder / RECORD_DOCUMENT).exists()

    @cached_property
    def requested(self) -> RequestedTrial:
        """The settings that the experiment requested, resolved: host names instead of aliases."""
        return self.require(RequestedTrial)

    @cached_property
    def attempt(self) -> Attempt:
        """How the trial was run. Times are seconds since 1970 by the controller's clock."""
        return self.require(Attempt)

    @cached_property
    def result(self) -> Result:
        """The verdict. Only trials whose status is ``ok`` are in the statistics."""
        return self.require(Result)

    @property
    def is_valid(self) -> bool:
        """Whether the trial is in the statistics."""
        return self.result.status == "ok"

    @cached_property
    def timings(self) -> Timings | None:
        """The repeats, warm-ups first, sorted by start; seconds by the client's clock."""
        return self.read(Timings)

    @property
    def durations_s(self) -> list[float]:
        """Seconds of each timed repeat, without warm-ups, in the order in which they ran; maybe none."""
        return [repeat.duration_s for repeat in self.timings.timed] if self.timings else []

    @cached_property
    def configured(self) -> Configured | None:
        """The settings that were read back from hosts and hypervisor; None if nobody read them."""
        return self.read(Configured)

    @cached_property
    def measured(self) -> Measured | None:
        """What probes measured of the links; None if no probe ran."""
        return self.read(Measured)

    @cached_property
    def hosts(self) -> Hosts | None:
        """Counters of hosts and node, as differences over the timed repeats."""
        return self.read(Hosts)

    @cached_property
    def observed_faults(self) -> ObservedFaults | None:
        """When each injected fault happened; None without faults."""
        return self.read(ObservedFaults)

    @cached_property
    def failed(self) -> Failed | None:
        """Why the trial failed; None if it did not, or if nobody could write it down."""
        return self.read(Failed)

    @cached_property
    def simulation(self) -> Simulation | None:
        """The outcome of each seed of a simulated trial; None of a measured one."""
        return self.read(Simulation)

    @cached_property
    def capture_report(self) -> CaptureReport | None:
        """Counters of the capture and the captured repeats; None if nothing was captured."""
        return self.read(CaptureReport)

    @cached_property
    def capture(self) -> Recording | None:
        """The decoded capture; None if nothing was captured."""
        return recording.read(self.folder)

    @property
    def captures(self) -> list[Path]:
        """The files of the capture, sorted by name; none if nothing was captured."""
        return sorted(self.folder.glob("capture*.pcap"))

    @cached_property
    def capture_gaps(self) -> tuple[str, ...]:
        """A line for each file of the capture that is missing or lost bytes."""
        return tuple(damages.capture_gaps(self.folder))

    @property
    def is_finished(self) -> bool:
        """Whether the trial was attempted or judged: only then must its files be complete."""
        return self.has(Attempt) or self.has(Result)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the documents and records that the trial has left by now."""
        return damages.left(self.folder)

    @property
    def measuring_s(self) -> float:
        """Seconds that were spent measuring: repeats, warm-ups, pings and throughput probes.

        Hosts ping at the same time, each of them one target after the other.
        """
        measured = self.measured or Measured()
        repeats_s = sum(sample.duration_s for sample in self.timings.samples) if self.timings else 0
        pings: dict[tuple[str, str], int] = {}
        for probe in measured.rtt:
            pings[probe.phase, probe.src] = pings.get((probe.phase, probe.src), 0) + len(probe.samples_ms)
        most_pings: dict[str, int] = {}
        for (phase, _), count in pings.items():
            most_pings[phase] = max(most_pings.get(phase, 0), count)
        pings_s = self.requested.probes.interval_s * sum(most_pings.values())
        return repeats_s + pings_s + sum(probe.seconds for probe in measured.throughput)

    @cached_property
    def damage(self) -> str | None:
        """Which document of a finished trial is damaged or missing, and why; None if the trial is whole."""
        return damages.damage(self.folder) if self.is_finished else None

    @cached_property
    def gaps(self) -> tuple[str, ...]:
        """A line for each file beside its documents that a whole trial lacks: records or captures."""
        return tuple(damages.gaps(self.folder)) if self.is_finished else ()

    def require(self, kind: type[D]) -> D:
        """Return the document of this kind.

        Raises:
            LabError: there is none, or it is damaged.
        """
        return documents.require(kind, self.folder)

    def read(self, kind: type[D]) -> D | None:
        """Return the document of this kind, for kinds that other packages add; None if there is none.

        Raises:
            LabError: it is damaged.
        """
        return documents.read(kind, self.folder)

    def has(self, kind: type[Document]) -> bool:
        """Whether there is a document of this kind, whole or damaged."""
        return documents.exists(kind, self.folder)

    def write(self, document: Document) -> None:
        """Write a document completely or not at all. Open the trial again to read it."""
        documents.write(self.folder, document)

    def write_computed(self, document: Document) -> None:
        """Write what was computed from the trial: beside it, or in the cache if that cannot be written."""
        documents.write(cached.writable(self.folder), document)

    def computed_file(self, name: str) -> Path:
        """Return where to write a file that is computed from the trial: beside it, or in the cache."""
        return cached.writable(self.folder) / name

    def validate(self) -> None:
        """Check what the attributes of a whole trial promise.

        Raises:
            ValueError: one of them does not hold; it is named.
        """
        repeats = self.timings.samples if self.timings else ()
        starts = [repeat.start for repeat in repeats]
        promises = {
            "its name is that of the requested and of the judged trial": (
                self.name == self.requested.trial == self.result.trial
            ),
            "repeats are sorted by start": starts == sorted(starts),
            "warm-ups come first": [repeat.warmup for repeat in repeats]
            == sorted((repeat.warmup for repeat in repeats), reverse=True),
            "no repeat has a negative length": all(repeat.duration_s >= 0 for repeat in repeats),
        }
        if broken := [promise for promise, holds in promises.items() if not holds]:
            raise ValueError(f"{self}: {broken[0]}, but not here")

    def require_whole(self) -> None:
        """Refuse a damaged trial that the user named, and report what a whole one lacks.

        Raises:
            LabError: a file is damaged or missing; it is named.
        """
        if self.damage:
            raise LabError(self.damage)
        for gap in self.gaps:
            warn(gap)


class Run:
    """What ``dasklab run`` or one ``record`` block made.

    A record, or a trial that is opened alone, is a run of one trial: it has no document and no experiment.
    """

    folder: Path
    """Where its files are: for those who write or read them. Messages name the run itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        """Return where it is, as messages and commands name it."""
        return display_path(self.folder)

    @property
    def name(self) -> str:
        """When it began, in UTC, as ``20260102T030405Z``; a record's and a trial's name is free."""
        return self.folder.name

    @cached_property
    def is_experiment(self) -> bool:
        """Whether this is the run of an experiment, and not a single trial or record."""
        return documents.exists(Campaign, self.folder)

    @cached_property
    def document(self) -> Campaign:
        """What the run started with. The names in its ``order`` lead nowhere out of the run.

        Raises:
            LabError: this is not a run of an experiment, or it names trials outside of it.
        """
        campaign = documents.read(Campaign, self.folder)
        if campaign is None and documents.exists(RequestedTrial, self.folder):
            raise LabError(f"{self}: this is a trial; name its run, {display_path(self.folder.parent)}")
        if campaign is None:
            raise LabError(f"{self}: this is not a run's directory, it has no {Campaign.FILE}")
        return campaign

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that the run measures, validated."""
        where = f"{self.document.name}, {Campaign.FILE}, experiment"
        return validate(Experiment, self.document.experiment, where)

    @property
    def metrics(self) -> list[str]:
        """The metrics that the experiment names, in its order; unique."""
        return list(self.document.experiment["metrics"])

    @property
    def setup(self) -> Setup:
        """The lab as the inventory describes it."""
        return self.document.setup

    @property
    def simulated(self) -> SimulatedSetup | None:
        """From where the costs of a simulated run are; None of a measured run."""
        return self.document.setup.simulated

    @cached_property
    def campaign(self) -> Run:
        """The run of an experiment that this is, or that the single trial is part of."""
        return self if self.is_experiment else Run(self.folder.parent)

    @cached_property
    def planned(self) -> tuple[Trial, ...]:
        """All trials in the order in which they run; some may not have a folder yet."""
        if not self.is_experiment:
            return (Trial(self.folder),)
        return tuple(Trial(self.folder / name) for name in self.document.order)

    @cached_property
    def attempted(self) -> tuple[Trial, ...]:
        """The trials that were attempted, judged or not, damaged or not, in the order in which they ran."""
        return tuple(trial for trial in self.planned if trial.is_finished)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The attempted trials that are whole, in the order in which they ran.

        Damaged trials are left out and reported, and so is what a whole trial lacks.
        """
        if not self.is_experiment:
            return self.planned
        for trial in self.damaged:
            warn(f"{trial.damage}; the trial is left out (to run it again: dasklab run {self} --again)")
        whole = tuple(trial for trial in self.attempted if not trial.damage)
        gaps = [gap for trial in whole for gap in trial.gaps]
        for gap in gaps[:MOST_GAPS]:
            warn(gap)
        if len(gaps) > MOST_GAPS:
            warn(f"{self}: {counted(len(gaps) - MOST_GAPS, 'more file')} of its trials missing")
        return whole

    @cached_property
    def damaged(self) -> tuple[Trial, ...]:
        """The attempted trials of which a document is damaged or missing; their ``damage`` names it."""
        return tuple(trial for trial in self.attempted if trial.damage)

    @property
    def single(self) -> Trial:
        """The trial or record that was opened alone.

        Raises:
            LabError: this is the run of an experiment.
        """
        if self.is_experiment:
            raise LabError(f"{self}: a run of an experiment; name one of its trials")
        return self.planned[0]

    def validate(self) -> None:
        """Check what the attributes of this class promise.

        Raises:
            ValueError: one of them does not hold; it is named.
        """
        names = [trial.name for trial in self.planned]
        if len(set(names)) < len(names):
            raise ValueError(f"{self}: two trials have one name")
        for trial in self.trials:
            trial.validate()

    def require(self, kind: type[D]) -> D:
        """Return the run's document of this kind, for kinds that other packages add.

        Raises:
            LabError: there is none, or it is damaged.
        """
        return documents.require(kind, self.folder)

    def write(self, document: Document) -> None:
        """Write a document completely or not at all. Open the run again to read it."""
        documents.write(self.folder, document)


def open_run(path: Path) -> Run:
    """Open a run of an experiment, a single trial or a record: a folder, a pack, or a path into a pack.

    Raises:
        LabError: a pack is damaged, or the document of a run is.
    """
    run = Run(pack.folder_of(path))
    if run.is_experiment:
        run.document  # noqa: B018  # refused here, once, if it is damaged
    return run


def open_trial(path: Path) -> Trial:
    """Open a single trial or a record: a folder, a pack, or a path into a pack."""
    return Trial(pack.folder_of(path))


def read_document(kind: type[D], file: Path) -> D:
    """Return the document in a file of any name, which the user named.

    Raises:
        LabError: there is no such file, or it is damaged.
    """
    document = documents.read_file(kind, file)
    if document is None:
        raise LabError(f"{file}: no such file")
    return document


def find_runs(path: Path) -> list[Run]:
    """Return the runs of experiments at or below a folder, oldest first; report those that cannot be read.

    Raises:
        LabError: there is no run that can be read.
    """
    folders = sorted((file.parent for file in path.glob(f"**/{Campaign.FILE}")), key=lambda run: run.name)
    with_trials = {file.parent.parent for file in path.glob(f"*/**/{RequestedTrial.FILE}")}
    for incomplete in sorted(with_trials - set(folders)):
        warn(f"{incomplete / Campaign.FILE}: the file is missing; the run is left out")
    runs = [run for run, _ in for_each_run(map(Run, folders), lambda run: run.document)]
    if not runs:
        raise LabError(
            f"{path}: no results here", "`dasklab run` makes some, `--results DIR` looks elsewhere"
        )
    return runs


def contains_runs(path: Path) -> bool:
    """Return whether there is a run of an experiment at or below a folder."""
    return any(path.glob(f"**/{Campaign.FILE}"))


def find_records(path: Path) -> list[Trial]:
    """Return the records of clusters at or below a folder, by path, without those of a lab's trials."""
    folders = sorted(file.parent for file in path.glob(f"**/{RECORD_DOCUMENT}"))
    return [Trial(folder) for folder in folders if not _is_of_trial(folder)]


def _is_of_trial(record: Path) -> bool:
    """Return whether a record is a lab's trial's, which may have lost its own document."""
    trial = record.parent
    return (trial / RequestedTrial.FILE).exists() or (trial.parent / Campaign.FILE).exists()


def for_each_run(runs: Iterable[Run], function: Callable[[Run], T]) -> Iterator[tuple[Run, T]]:
    """Yield each run with the result of ``function``. Runs for which it fails are reported and left out.

    Raises:
        LabError: it fails for all of them; the first failure is raised.
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
    if failures and not successes:
        raise failures[0]
    for failure in failures:
        warn(f"{failure.message}; the run is left out")


def read_steadily(run: Run, read: Callable[[Run], T], pause_s: float = 0.5) -> T:
    """Return what ``read`` makes of a run; open it again if `dasklab run RUN` replaced a trial meanwhile."""
    while True:
        judged = _judged(run)
        try:
            return read(run)
        except (LabError, OSError):
            time.sleep(pause_s)  # a trial's folder is removed file by file
            run = open_run(run.folder)
            if _judged(run) == judged:
                raise


def _judged(run: Run) -> list[str]:
    return [trial.name for trial in run.planned if trial.has(Result)]
