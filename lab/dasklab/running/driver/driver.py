"""Run an experiment's trials one after the other, unattended. The driver may be killed at any moment.

A run is a folder. Its ``experiment.json`` lists the planned trials; a trial is finished when its folder holds
``result.json``. ``dasklab.running.driver.life`` says which trials are run when the run is resumed. Resuming
needs no state but the files, so a kill loses at most one trial.

The driver reaches the lab through ``TrialRunner``: Ansible, the simulator and the tests implement it.
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
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.foreign_code import code_of, require_trusted
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.files import Attempt, Campaign, Result
from dasklab.paths import SHARE
from dasklab.results import table
from dasklab.results.run import Run, Trial
from dasklab.results.validity import completeness, node, verdict
from dasklab.running.driver import stops
from dasklab.running.driver.life import TRANSITIONS, Event, State, is_pending
from dasklab.running.plan.trials import estimate_s, plan

DISTURBED_REPEATS = 2  # a trial that other users of the node disturbed is run again so often


class ResetStoppedError(KeyboardInterrupt):
    """The user pressed Ctrl-C again while the lab was being reset."""


class TrialRunner(Protocol):
    """A lab that can run trials."""

    def run_trial(self, trial: Trial) -> int:
        """Run the trial as ``trial.requested`` says, write its files and return an exit status."""

    def reset(self) -> None:
        """Clear impairments, captures and clusters on all machines, and restore the inventory's NICs."""

    def require_endpoint(self) -> None:
        """Raise LabError if no trial can run because the lab's endpoint does not answer."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that can be executed: what is stored of it, its trials in order, and the lab of the inventory.

    With ``again``, invalid and damaged trials are run again too, not only failed ones.
    """

    stored: Run
    name: str
    experiment: Experiment
    trials: list[RequestedTrial]
    setup: Setup
    again: bool = False

    def opened_again(self) -> Run:
        """Return the run with what its trials have left by now; an opened run shows what was there then."""
        return Run(self.stored.folder)

    def trial(self, name: str) -> Trial:
        """Return one of the run's trials, with what it has left by now; it may not have a folder yet."""
        return Trial(self.stored.folder / name)

    def pending(self) -> list[RequestedTrial]:
        """Return the trials that are still to be run, in order."""
        return [trial for trial in self.trials if is_pending(self.trial(trial.trial), self.again)]

    def remaining_s(self) -> float:
        """Estimate how long the pending trials will take, from the finished trials or else from the plan."""
        results = [trial.result for trial in self.opened_again().trials]
        durations_s = [result.wall_s for result in results if result.status in ("ok", "invalid")]
        pending = [trial for trial in self.pending() if not trial.unsupported]
        if durations_s:
            return float(len(pending) * median(durations_s))
        simulated = self.setup.simulated is not None
        return sum(estimate_s(trial, self.experiment.repeat_s, simulated) for trial in pending)


def start(
    root: Path,
    name: str,
    experiment: Experiment,
    setup: Setup,
    *,
    quick: bool,
    seed: int | None = None,
    only: str | None = None,
) -> ActiveRun:
    """Create a run's folder, ``root/<experiment>/<time>``, and write its plan there.

    Args:
        root: folder of all runs.
        name: the experiment's name.
        experiment: its content, in the short form if ``quick``.
        setup: the lab as the inventory describes it.
        quick: whether this is the short form; recorded only.
        seed: replaces the experiment's seed.
        only: run only this cell, with the baseline and the null trial.
    """
    seed = experiment.seed if seed is None else seed
    trials = plan(name, experiment, setup, seed=seed, only=only)
    directory = root / name / datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    directory.mkdir(parents=True)
    document = Campaign(
        name=name,
        quick=quick,
        seed=seed,
        only=only,
        order=tuple(trial.trial for trial in trials),
        git_revision=_git_revision(),
        setup=setup,
        experiment=experiment.model_dump(mode="json", exclude_unset=True),
    )
    stored = Run(directory)
    stored.write(document)
    return ActiveRun(stored, name, experiment, trials, setup)


def resume(stored: Run, setup: Setup | None = None, *, again: bool = False) -> ActiveRun:
    """Return a stored run that can be executed, exactly as it was planned.

    Args:
        stored: the run.
        setup: the lab as the inventory describes it now; by default the lab of the run (for a simulated one).
        again: run invalid and damaged trials again too.

    Raises:
        LabError: the inventory has changed, or this version of dasklab plans other trials.
    """
    document = stored.document
    if setup and not document.setup.is_same_lab(setup):
        raise LabError(
            f"{stored}: the inventory has changed since this run started",
            "restore the inventory or start a new run; trials of different labs cannot be compared",
        )
    experiment = stored.experiment
    trials = plan(document.name, experiment, document.setup, seed=document.seed, only=document.only)
    if tuple(trial.trial for trial in trials) != document.order:
        raise LabError(
            f"{stored}: this version of dasklab plans other trials than that of the run",
            f"git checkout {document.git_revision}, or start a new run",
        )
    return ActiveRun(stored, document.name, experiment, trials, document.setup, again)


def execute(
    run: ActiveRun,
    lab: TrialRunner,
    watch: Callable[[RequestedTrial, State], None],
    wait: Callable[[], None] = lambda: None,
) -> None:
    """Run all pending trials. A failed trial is recorded, and the others are still run.

    The run stops after a failed trial if the lab's endpoint does not answer: all others would fail, too.
    A trial that is invalid only because others used its node is repeated after the rest, up to
    ``DISTURBED_REPEATS`` times. A trial leaves the NICs as it needed them, because another model costs a
    restart of the machine. At the end of the run and on Ctrl-C the lab is reset to match the inventory.

    Args:
        run: the run.
        lab: where its trials run.
        watch: called as ``watch(trial, State.RUNNING)`` before each trial and with its verdict after it.
        wait: called before each trial; returns when the node is quiet.

    Raises:
        LabError: code of a trial is not trusted, the run stopped early, or the lab could not be reset.
    """
    pending = run.pending()
    for trial in pending:
        require_trusted(code_of(trial))
    try:
        for trial in pending:
            _measure(run, trial, lab, watch, wait)
        for _ in range(DISTURBED_REPEATS):
            for trial in _disturbed(run, pending):
                _measure(run, trial, lab, watch, wait)
    except KeyboardInterrupt:
        try:
            lab.reset()
        except KeyboardInterrupt:
            raise ResetStoppedError from None
        raise
    table.write(run.opened_again())
    if any(trial.nics != run.setup.nics and not trial.unsupported for trial in pending):
        lab.reset()


def _measure(
    run: ActiveRun,
    trial: RequestedTrial,
    lab: TrialRunner,
    watch: Callable[[RequestedTrial, State], None],
    wait: Callable[[], None],
) -> None:
    if not trial.unsupported:
        wait()
    watch(trial, State.RUNNING)
    exit_status = _attempt(run.trial(trial.trial), trial, lab)
    watch(trial, State(verdict.assess(run.opened_again())[trial.trial].status))
    if exit_status:
        _require_endpoint(run, trial, lab)


def _require_endpoint(run: ActiveRun, failed: RequestedTrial, lab: TrialRunner) -> None:
    try:
        lab.require_endpoint()
    except LabError as error:
        table.write(run.opened_again())
        raise LabError(f"the run stopped after trial {failed.trial}: {error.message}", error.hint) from error


def _disturbed(run: ActiveRun, trials: list[RequestedTrial]) -> list[RequestedTrial]:
    """Return the trials that are invalid only because others used their node."""
    results = [(trial, run.trial(trial.trial).read(Result)) for trial in trials]
    return [
        trial
        for trial, result in results
        if result
        and (State(result.status), Event.REPEAT) in TRANSITIONS
        and node.is_disturbed(result.reasons)
    ]


def _attempt(stored: Trial, trial: RequestedTrial, lab: TrialRunner) -> int:
    """Run one trial in an empty folder and return its exit status. An earlier attempt's files are removed."""
    shutil.rmtree(stored.folder, ignore_errors=True)
    stored.folder.mkdir(parents=True)
    stored.write(trial)
    started, clock, suspended_s = time.time(), time.monotonic(), _suspended_s()
    with stops.watch_own_process() as pauses:
        status, error = _run(stored, trial, lab)
    wall_s, measuring_s = time.monotonic() - clock, 0.0
    try:
        measuring_s = stored.measuring_s
        completeness.write(stored)
    except LabError as unreadable:  # a file that the trial wrote
        status, error = status or 1, error or unreadable.message
    attempt = Attempt(
        started=started,
        exit_status=status,
        wall_s=wall_s,
        measuring_s=measuring_s,
        error=error,
        files=stored.files,
        suspended_s=round(_suspended_s() - suspended_s, 3),
        pauses=tuple(pauses),
    )
    stored.write(attempt)
    return status


def _run(stored: Trial, trial: RequestedTrial, lab: TrialRunner) -> tuple[int, str | None]:
    """Run a trial unless the lab does not support it; return its exit status and error."""
    if trial.unsupported:
        return 0, None
    try:
        return lab.run_trial(stored), None
    except LabError as error:
        return 1, str(error).replace("\n  ", "; ")


def _suspended_s() -> float:
    """Return how long this machine has been suspended since it booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def _git_revision() -> str | None:
    command = ["git", "-C", str(SHARE), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return process.stdout.strip() or None
