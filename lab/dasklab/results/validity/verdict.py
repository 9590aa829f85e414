"""The verdict on each trial of a run: ok, invalid, unsupported or failed, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.experiments.trial import RequestedTrial
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
from dasklab.model.forms.document import Document
from dasklab.notices import warn
from dasklab.results.run import Run, Trial
from dasklab.results.validity import (
    cluster,
    configured,
    drops,
    faults,
    measured,
    node,
    pauses,
    retransmissions,
)
from dasklab.results.validity.measured import Baseline

Verdict = tuple[Status, list[str]]
NEEDED: tuple[type[Document], ...] = (RequestedTrial, Attempt)
READ: tuple[type[Document], ...] = (Timings, Failed, ObservedFaults, Configured, Measured, Hosts)


def assess(run: Run) -> dict[str, Result]:
    """Judge every attempted trial of a run against its baselines, and write each result.json.

    A trial has failed if it leaves a file that cannot be read. If a file was damaged after the verdict, the
    verdict stays.

    Returns:
        The result of each trial, by name.
    """
    attempted = {trial: _unreadable(trial) for trial in run.planned if trial.has(Attempt)}
    trials = [trial for trial, reason in attempted.items() if reason is None]
    allowed, simulated, seed = run.experiment.tolerances, run.simulated is not None, run.document.seed
    failures = {trial: _failure(trial, simulated, seed) for trial in trials}
    bases = [
        trial
        for trial in trials
        if (trial.requested.baseline or trial.requested.null) and not failures[trial]
    ]
    base = None
    if bases and not simulated:  # simulated links are as requested
        base = measured.baseline(bases[0].requested, [trial.measured for trial in bases if trial.measured])
    results = [
        _write(trial, failures[trial] or _judge(trial, base, allowed), _warnings(trial, allowed))
        for trial in trials
    ]
    results += [
        result
        for trial, reason in attempted.items()
        if reason and (result := _fail_unreadable(trial, reason))
    ]
    return {result.trial: result for result in results}


def link_reasons(
    trial: RequestedTrial,
    configured_links: Configured | None,
    measured_links: Measured | None,
    base: Baseline,
    allowed: Tolerances,
) -> list[str]:
    """Return the reasons why the links of a trial are not as requested; none if they are."""
    if configured_links is None:
        return [f"the links were not read back: {Configured.FILE} is missing"]
    if measured_links is None:
        return [f"the links were not measured: {Measured.FILE} is missing"]
    return [
        *configured.differences(trial, configured_links),
        *drops.differences(trial, configured_links, allowed),
        *measured.differences(trial, measured_links, base, allowed),
    ]


def _unreadable(trial: Trial) -> str | None:
    """Return why a trial's files cannot be judged; None if they can."""
    try:
        for kind in NEEDED:
            trial.require(kind)
        for kind in READ:
            trial.read(kind)
    except LabError as error:
        return error.message
    return None


def _fail_unreadable(trial: Trial, reason: str) -> Result | None:
    """Judge a trial that left a file which cannot be read, unless it was judged before."""
    try:
        if not trial.has(Result):
            return _write(trial, ("failed", [reason]))
    except LabError:  # not even the trial's name can be read
        pass
    warn(f"{reason}; the trial is not judged")
    return None


def _judge(trial: Trial, base: Baseline | None, allowed: Tolerances) -> Verdict:
    """Judge a trial that completed. Without a baseline its links cannot be judged yet."""
    requested, timings = trial.requested, trial.require(Timings)
    during_repeats = [
        *faults.differences(requested, trial.observed_faults, timings),
        *pauses.differences(timings, trial.attempt, allowed),
    ]
    if base is None:
        return ("invalid" if during_repeats else "ok"), during_repeats
    reasons = link_reasons(requested, trial.configured, trial.measured, base, allowed)
    reasons += [*cluster.differences(requested, timings), *during_repeats]
    if hosts := trial.hosts:
        reasons += [*node.clocks(hosts), *node.steal(hosts, allowed), *node.foreign(hosts, allowed)]
    return ("invalid" if reasons else "ok"), reasons


def _failure(trial: Trial, simulated: bool, seed: int) -> Verdict | None:
    """Return the verdict on a trial that has nothing to judge; None if it has."""
    requested, timings = trial.requested, trial.timings
    if requested.unsupported:
        return "unsupported", list(requested.unsupported)
    if trial.attempt.exit_status:
        if failed := trial.failed:
            return failed.status, [*failed.reasons, *faults.reproduction(requested, seed)]
        return "failed", [trial.attempt.error or f"ended with status {trial.attempt.exit_status}"]
    if timings is None:
        return "failed", [f"the workload left no {Timings.FILE}"]
    check, workers = timings.check, timings.cluster.hosts
    if requested.worker.variant == "zero" or simulated:  # these compute nothing, so there is no answer
        pass
    elif check is None:
        return "failed", ["the workload did not check its answer"]
    elif not check.ok:
        return "failed", [f"wrong answer: {check.answer}, expected {check.expected} +- {check.tolerance}"]
    if workers not in faults.expected_workers(requested):
        return "failed", [f"{workers} workers computed, {requested.workers} were requested"]
    return None


def _warnings(trial: Trial, allowed: Tolerances) -> list[str]:
    """Return what is suspicious in a trial but does not make it invalid."""
    if trial.hosts is None:
        return []
    measured_links = trial.measured or Measured()
    confidence = allowed.loss_confidence
    return list(retransmissions.warnings(trial.requested, trial.hosts, measured_links, confidence))


def _write(trial: Trial, verdict: Verdict, warnings: Sequence[str] = ()) -> Result:
    status, reasons = verdict
    result = Result(
        experiment=trial.requested.experiment,
        trial=trial.requested.trial,
        cell=trial.requested.cell,
        status=status,
        reasons=tuple(reasons),
        warnings=tuple(warnings) if status in ("ok", "invalid") else (),
        wall_s=trial.attempt.wall_s,
        measuring_s=trial.attempt.measuring_s,
    )
    trial.write(result)
    return result
