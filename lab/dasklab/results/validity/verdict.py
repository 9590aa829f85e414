"""The verdict on each trial of a run, with its reasons: ok, invalid, unsupported or failed."""

from __future__ import annotations

from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.document import Document
from dasklab.model.experiment import Tolerances
from dasklab.model.files import (
    Attempt,
    Configured,
    Failed,
    Hosts,
    Measured,
    ObservedFaults,
    Result,
    Status,
    Timings,
)
from dasklab.model.trial import Trial
from dasklab.notices import warn
from dasklab.results.storage import store
from dasklab.results.validity import cluster, faults, measured, pauses
from dasklab.results.validity.measured import Baseline

Verdict = tuple[Status, list[str]]
READ: tuple[type[Document], ...] = (Timings, Failed, ObservedFaults, Configured, Measured, Hosts)


def assess(run: Path) -> dict[str, Result]:
    """Judge every attempted trial of a run against its baselines and write each result.json.

    A trial that leaves a file which cannot be read has failed; one that was damaged later is left as it is.
    """
    attempted = {directory: _unreadable(directory) for directory in store.having(run, Attempt)}
    trials = {d: store.need(Trial, d) for d, why in attempted.items() if why is None}
    begun = store.read_run(run)
    allowed, simulated = store.experiment(begun).tolerances, begun.setup.simulated is not None
    failures = {
        directory: _failure(directory, trial, simulated, begun.seed) for directory, trial in trials.items()
    }
    bases = [d for d, trial in trials.items() if (trial.baseline or trial.null) and not failures[d]]
    base = None
    if bases and not simulated:  # its links are what was asked
        delivered = [found for d in bases if (found := store.read(Measured, d))]
        base = measured.baseline(trials[bases[0]], delivered)
    verdicts = {d: failures[d] or _judged(d, trial, base, allowed) for d, trial in trials.items()}
    results = [_write(d, trial, verdicts[d]) for d, trial in trials.items()]
    results += [result for d, why in attempted.items() if why and (result := _fail(d, why))]
    return {result.trial: result for result in results}


def _unreadable(directory: Path) -> str | None:
    """Why no verdict can be based on a trial's files; None if one can."""
    try:
        store.need(Trial, directory), store.need(Attempt, directory)
        for kind in READ:
            store.read(kind, directory)
    except LabError as error:
        return error.message
    return None


def _fail(directory: Path, why: str) -> Result | None:
    """The verdict on a trial that left files which cannot be read; one that was judged before stays."""
    try:
        trial = store.need(Trial, directory)
        if not (directory / Result.FILE).exists():
            return _write(directory, trial, ("failed", [why]))
    except LabError:  # it is not even known which trial that is
        pass
    warn(f"{why}; the trial is not judged")
    return None


def _judged(directory: Path, trial: Trial, base: Baseline | None, allowed: Tolerances) -> Verdict:
    """The verdict on a trial that got through; without a baseline there is nothing to judge it by yet."""
    timings = store.need(Timings, directory)
    wrong = [
        *faults.differences(trial, store.read(ObservedFaults, directory), timings),
        *pauses.differences(timings, store.need(Attempt, directory), allowed),
    ]
    if base is None:
        return ("invalid" if wrong else "ok"), wrong
    configured, delivered = store.read(Configured, directory), store.read(Measured, directory)
    reasons = measured.reasons(trial, configured, delivered, base, allowed)
    reasons += [*cluster.differences(trial, timings), *wrong]
    if machines := store.read(Hosts, directory):
        reasons += [*measured.clocks(machines), *measured.stolen(machines, allowed)]
        reasons += measured.foreign(machines, allowed)
    return ("invalid" if reasons else "ok"), reasons


def _failure(directory: Path, trial: Trial, simulated: bool, seed: int) -> Verdict | None:
    """Why a trial has nothing to judge."""
    if trial.unsupported:
        return "unsupported", list(trial.unsupported)
    attempt, timings = store.need(Attempt, directory), store.read(Timings, directory)
    if attempt.exit_status:
        if failed := store.read(Failed, directory):
            return failed.status, [*failed.reasons, *faults.told(trial, seed)]
        return "failed", [attempt.error or f"ended with status {attempt.exit_status}"]
    if timings is None:
        return "failed", ["the workload left no timings.json"]
    check, workers = timings.check, timings.cluster.hosts
    if trial.worker.variant == "zero" or simulated:  # who computes nothing has no answer
        pass
    elif check is None:
        return "failed", ["the workload did not check its answer"]
    elif not check.ok:
        return "failed", [f"wrong answer: {check.answer}, expected {check.expected} +- {check.tolerance}"]
    if workers not in faults.workers(trial):
        return "failed", [f"{workers} workers computed, {trial.workers} were asked"]
    return None


def _write(directory: Path, trial: Trial, verdict: Verdict) -> Result:
    status, reasons = verdict
    attempt = store.need(Attempt, directory)
    result = Result(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        status=status,
        reasons=tuple(reasons),
        wall_s=attempt.wall_s,
        measuring_s=attempt.measuring_s,
    )
    store.write(directory, result)
    return result
