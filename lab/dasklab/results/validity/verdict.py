"""The verdict on each trial of a run: ok, invalid, unsupported or failed, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
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
from dasklab.model.trial import RequestedTrial
from dasklab.notices import warn
from dasklab.results.storage import store
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
READ: tuple[type[Document], ...] = (Timings, Failed, ObservedFaults, Configured, Measured, Hosts)


def assess(run: Path) -> dict[str, Result]:
    """Judge every attempted trial of a run against its baselines, and write each result.json.

    A trial has failed if it leaves a file that cannot be read. If a file was damaged after the verdict, the
    verdict stays.

    Returns:
        The result of each trial, by name.
    """
    attempted = {directory: _unreadable(directory) for directory in store.having(run, Attempt)}
    trials = {d: store.need(RequestedTrial, d) for d, reason in attempted.items() if reason is None}
    campaign = store.read_run(run)
    allowed, simulated = store.experiment(campaign).tolerances, campaign.setup.simulated is not None
    failures = {d: _failure(d, trial, simulated, campaign.seed) for d, trial in trials.items()}
    bases = [d for d, trial in trials.items() if (trial.baseline or trial.null) and not failures[d]]
    base = None
    if bases and not simulated:  # simulated links are as requested
        documents = [document for d in bases if (document := store.read(Measured, d))]
        base = measured.baseline(trials[bases[0]], documents)
    verdicts = {d: failures[d] or _judge(d, trial, base, allowed) for d, trial in trials.items()}
    results = [_write(d, trial, verdicts[d], _warnings(d, trial, allowed)) for d, trial in trials.items()]
    results += [
        result for d, reason in attempted.items() if reason and (result := _fail_unreadable(d, reason))
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


def _unreadable(directory: Path) -> str | None:
    """Return why a trial's files cannot be judged; None if they can."""
    try:
        store.need(RequestedTrial, directory), store.need(Attempt, directory)
        for kind in READ:
            store.read(kind, directory)
    except LabError as error:
        return error.message
    return None


def _fail_unreadable(directory: Path, reason: str) -> Result | None:
    """Judge a trial that left a file which cannot be read, unless it was judged before."""
    try:
        trial = store.need(RequestedTrial, directory)
        if not (directory / Result.FILE).exists():
            return _write(directory, trial, ("failed", [reason]))
    except LabError:  # not even the trial's name can be read
        pass
    warn(f"{reason}; the trial is not judged")
    return None


def _judge(directory: Path, trial: RequestedTrial, base: Baseline | None, allowed: Tolerances) -> Verdict:
    """Judge a trial that completed. Without a baseline its links cannot be judged yet."""
    timings = store.need(Timings, directory)
    during_runs = [
        *faults.differences(trial, store.read(ObservedFaults, directory), timings),
        *pauses.differences(timings, store.need(Attempt, directory), allowed),
    ]
    if base is None:
        return ("invalid" if during_runs else "ok"), during_runs
    links = store.read(Configured, directory), store.read(Measured, directory)
    reasons = link_reasons(trial, *links, base, allowed)
    reasons += [*cluster.differences(trial, timings), *during_runs]
    if hosts := store.read(Hosts, directory):
        reasons += [*node.clocks(hosts), *node.steal(hosts, allowed), *node.foreign(hosts, allowed)]
    return ("invalid" if reasons else "ok"), reasons


def _failure(directory: Path, trial: RequestedTrial, simulated: bool, seed: int) -> Verdict | None:
    """Return the verdict on a trial that has nothing to judge; None if it has."""
    if trial.unsupported:
        return "unsupported", list(trial.unsupported)
    attempt, timings = store.need(Attempt, directory), store.read(Timings, directory)
    if attempt.exit_status:
        if failed := store.read(Failed, directory):
            return failed.status, [*failed.reasons, *faults.reproduction(trial, seed)]
        return "failed", [attempt.error or f"ended with status {attempt.exit_status}"]
    if timings is None:
        return "failed", [f"the workload left no {Timings.FILE}"]
    check, workers = timings.check, timings.cluster.hosts
    if trial.worker.variant == "zero" or simulated:  # these compute nothing, so there is no answer
        pass
    elif check is None:
        return "failed", ["the workload did not check its answer"]
    elif not check.ok:
        return "failed", [f"wrong answer: {check.answer}, expected {check.expected} +- {check.tolerance}"]
    if workers not in faults.expected_workers(trial):
        return "failed", [f"{workers} workers computed, {trial.workers} were requested"]
    return None


def _warnings(directory: Path, trial: RequestedTrial, allowed: Tolerances) -> list[str]:
    """Return what is suspicious in a trial but does not make it invalid."""
    hosts = store.read(Hosts, directory)
    if hosts is None:
        return []
    measured_links = store.read(Measured, directory) or Measured()
    return list(retransmissions.warnings(trial, hosts, measured_links, allowed.loss_confidence))


def _write(directory: Path, trial: RequestedTrial, verdict: Verdict, warnings: Sequence[str] = ()) -> Result:
    status, reasons = verdict
    attempt = store.need(Attempt, directory)
    result = Result(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        status=status,
        reasons=tuple(reasons),
        warnings=tuple(warnings) if status in ("ok", "invalid") else (),
        wall_s=attempt.wall_s,
        measuring_s=attempt.measuring_s,
    )
    store.write(directory, result)
    return result
