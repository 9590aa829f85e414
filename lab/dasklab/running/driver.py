"""Runs an experiment's trials one after the other, unattended, and can be killed at any moment.

A run is a directory: ``experiment.json`` says what will be done, each trial's ``result.json`` that it was.
A trial without one is run (again), as is a failed one; so resuming needs no state but the files, and loses at
most one trial.
The lab itself is reached by two callables, ``run_trial(directory) -> exit status`` and ``reset()``.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Protocol

from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.model.files import Attempt, Campaign, Result, Status
from dasklab.model.trial import Setup, Trial
from dasklab.notices import warn
from dasklab.paths import SHARE
from dasklab.results.storage import damage, store, table
from dasklab.results.validity import completeness, measured, verdict
from dasklab.running.trials import estimate_s, plan

REPEATS = 2  # of a trial that others disturbed


class Lab(Protocol):
    """What the driver needs of the lab."""

    def run_trial(self, directory: Path) -> int:
        """Run the trial described by ``directory/trial.json``; leave its files there. 0 is success."""

    def reset(self) -> None:
        """Clear impairments, captures and clusters on all machines."""


@dataclass(frozen=True)
class Ongoing:
    """A run on its way: directory, experiment, trials in order, and the lab as the inventory has it."""

    directory: Path
    name: str
    experiment: Experiment
    trials: list[Trial]
    setup: Setup
    again: bool = False

    def pending(self) -> list[Trial]:
        """Trials not attempted to the end, or failed; with ``again`` invalid and damaged ones too."""
        return [trial for trial in self.trials if _undone(self.directory / trial.trial, self.again)]

    def remaining_s(self) -> float:
        """Estimate of the time that the pending trials will take: as those done so far, or as planned."""
        walls = [attempt.wall_s for attempt in store.attempts(self.directory) if not attempt.exit_status]
        pending = self.pending()
        if walls:
            return float(len(pending) * median(walls))
        simulated = self.setup.simulated is not None
        return sum(estimate_s(trial, self.experiment.run_s, simulated) for trial in pending)


def start(
    root: Path,
    name: str,
    experiment: Experiment,
    setup: Setup,
    *,
    quick: bool,
    seed: int | None = None,
    only: str | None = None,
) -> Ongoing:
    """Make the run's directory, ``root/<experiment>/<time>``, and write down what will be done there."""
    used = experiment.seed if seed is None else seed
    trials = plan(name, experiment, setup, seed=used, only=only)
    directory = root / name / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    directory.mkdir(parents=True)
    begun = Campaign(
        name=name,
        quick=quick,
        seed=used,
        only=only,
        order=tuple(trial.trial for trial in trials),
        git_revision=_git_revision(),
        setup=setup,
        experiment=experiment.model_dump(mode="json", exclude_unset=True),
    )
    store.write(directory, begun)
    return Ongoing(directory, name, experiment, trials, setup)


def resume(directory: Path, setup: Setup | None = None, *, again: bool = False) -> Ongoing:
    """The run of an existing directory, exactly as planned when it began; ``again``: invalid trials too.

    ``setup`` is the lab as it is now; a simulated one is as it was.

    Raises:
        LabError: the lab's inventory, or how this version of the lab plans, is not what it was.
    """
    begun = store.read_run(directory)
    setup = setup or begun.setup
    if begun.setup != setup:
        raise LabError(
            f"{directory}: the inventory is not as it was when the run began",
            "bring it back, or start a new run: trials of two labs are not compared",
        )
    experiment = store.experiment(begun)
    trials = plan(begun.name, experiment, setup, seed=begun.seed, only=begun.only)
    if tuple(trial.trial for trial in trials) != begun.order:
        raise LabError(
            f"{directory}: this version of the lab plans other trials than the one that began the run",
            f"git checkout {begun.git_revision}, or start a new run",
        )
    return Ongoing(directory, begun.name, experiment, trials, setup, again)


def execute(
    run: Ongoing, lab: Lab, watch: Callable[[Trial, str], None], wait: Callable[[], None] = lambda: None
) -> None:
    """Run all pending trials. A failed trial is recorded and the rest goes on.

    ``wait()`` comes before each trial and returns when the node is quiet. A trial that is invalid only
    because others used its node is repeated when the others are through, at most REPEATS times.

    A trial leaves NICs as it had them, because another model costs a machine a restart; whether the run ends
    or is stopped by Ctrl-C, the lab is then as the inventory has it.
    ``watch(trial, "running")`` comes before each trial and ``watch(trial, status)`` after it.
    """
    pending = run.pending()
    try:
        for trial in pending:
            _measure(run, trial, lab, watch, wait)
        for _ in range(REPEATS):
            for trial in _disturbed(run, pending):
                _measure(run, trial, lab, watch, wait)
    except KeyboardInterrupt:
        lab.reset()
        raise
    table.write(run.directory)
    if any(trial.nics != run.setup.nics and not trial.unsupported for trial in pending):
        lab.reset()


def _measure(
    run: Ongoing,
    trial: Trial,
    lab: Lab,
    watch: Callable[[Trial, str], None],
    wait: Callable[[], None],
) -> None:
    wait()
    watch(trial, "running")
    _attempt(run.directory / trial.trial, trial, lab)
    watch(trial, verdict.assess(run.directory)[trial.trial].status)


def _disturbed(run: Ongoing, trials: list[Trial]) -> list[Trial]:
    """The trials that are invalid only because of what others did on their node."""
    results = [(trial, store.read(Result, run.directory / trial.trial)) for trial in trials]
    return [trial for trial, result in results if result and measured.is_disturbed(result.reasons)]


def _attempt(directory: Path, trial: Trial, lab: Lab) -> None:
    """One trial from nothing: what a killed attempt left there is thrown away."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    store.write(directory, trial)
    started, clock, suspended_s = time.time(), time.monotonic(), _suspended_s()
    status, error = _run(directory, trial, lab)
    wall_s, measuring_s = time.monotonic() - clock, 0.0
    try:
        measuring_s = store.measuring_s(directory)
        completeness.write(directory)
    except LabError as mistake:  # a file that the trial left cannot be read
        status, error = status or 1, error or mistake.message
    attempt = Attempt(
        started=started,
        exit_status=status,
        wall_s=wall_s,
        measuring_s=measuring_s,
        error=error,
        files=damage.left(directory),
        suspended_s=round(_suspended_s() - suspended_s, 3),
    )
    store.write(directory, attempt)


def _run(directory: Path, trial: Trial, lab: Lab) -> tuple[int, str | None]:
    """Exit status and error of a trial; one that this lab cannot do is not tried."""
    if trial.unsupported:
        return 0, None
    try:
        return lab.run_trial(directory), None
    except LabError as error:
        return 1, str(error).replace("\n  ", "; ")


def _undone(directory: Path, again: bool) -> bool:
    status = _status(directory)
    if not again or status is None:
        return status in (None, "failed")
    return status in ("failed", "invalid") or damage.damage(directory) is not None


def _status(directory: Path) -> Status | None:
    try:
        result = store.read(Result, directory)
    except LabError as error:
        warn(f"{error.message}; the trial is run again")
        return None
    return result.status if result else None


def _suspended_s() -> float:
    """For how long this machine has been suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _git_revision() -> str | None:
    command = ["git", "-C", str(SHARE), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
