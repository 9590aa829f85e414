"""The verdict on each trial of a run: ok, invalid, unsupported or failed, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import (
    Attempt,
    Configured,
    ConfiguredHost,
    Failed,
    Hosts,
    Measured,
    ObservedFault,
    ObservedFaults,
    Pause,
    Queue,
    Result,
    Status,
    Timings,
)
from dasklab.model.forms.document import Document
from dasklab.model.settings.faults import Fault
from dasklab.model.settings.link import Link
from dasklab.notices import warn
from dasklab.results.run import Run, Trial
from dasklab.results.validity import binomial, cluster, configured, measured, node, retransmissions
from dasklab.results.validity.measured import Baseline

Verdict = tuple[Status, list[str]]
NEEDED: tuple[type[Document], ...] = (RequestedTrial, Attempt)
READ: tuple[type[Document], ...] = (Timings, Failed, ObservedFaults, Configured, Measured, Hosts)
# A stopped process neither computes nor waits for a CPU. Another one does so for almost all of a pause, but
# on a machine whose CPU is taken by its host, a part of that time is not accounted for.
ACTIVE_SHARE = 0.2
FAULT_LATE_S = 1.0  # a fault may start, and end, later than requested: a service takes time to start
KILLED_STATES = ("inactive", "failed")  # systemd's words for a killed service


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
        *_drop_differences(trial, configured_links, allowed),
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
        *_fault_differences(requested, trial.observed_faults, timings),
        *pause_differences(timings, trial.attempt, allowed),
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
            return failed.status, [*failed.reasons, *reproduction(requested, seed)]
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
    if workers not in expected_workers(requested):
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


def _drop_differences(trial: RequestedTrial, configured: Configured, allowed: Tolerances) -> Iterator[str]:
    """Yield a line for each netem that dropped otherwise than requested."""
    for host, configured_host in configured.hosts.items():
        for queue in configured_host.qdisc_after:
            if queue.kind == "netem":
                yield from _drops(host, trial.links.get(host, Link()), queue, configured_host, allowed)


def _drops(
    host: str, link: Link, queue: Queue, configured: ConfiguredHost, allowed: Tolerances
) -> Iterator[str]:
    drops, tries = queue.drops, queue.drops + queue.packets
    if link.rate_mbit and not link.policer:
        return  # the full queue in front of a capped link drops frames too, as it should
    if not link.loss_pct:
        if drops:
            yield f"{host}: netem dropped {drops} frames, but no loss was requested (its limit was too small)"
        return
    if _has_super_packets(configured, queue) or not tries:
        return  # one drop takes a super-packet of many segments: the counters cannot be compared
    if binomial.excludes(drops, tries, link.loss_pct / 100, allowed.loss_confidence):
        share = 100 * drops / tries
        yield f"{host}: requested {link.loss_pct:g} % loss, netem dropped {share:.2f} % of {tries} frames"


def _has_super_packets(configured: ConfiguredHost, queue: Queue) -> bool:
    """Whether offloads pass many segments at once to this netem, at the link or at the device behind it."""
    at_link = queue.dev in (None, configured.interface)
    return any(configured.offloads.get(name) for name in (("tso", "gso") if at_link else ("gro", "lro")))


def pause_differences(timings: Timings, attempt: Attempt, allowed: Tolerances) -> Iterator[str]:
    """Yield a line for each pause that was too long: of dasklab in the trial, of others in a timed repeat.

    A process that computes without letting its other threads run, or that waits for a busy CPU, is part of
    what is measured.
    """
    if attempt.suspended_s > allowed.paused_s:
        yield f"the machine that runs dasklab was suspended for {attempt.suspended_s:.1f} s during the trial"
    yield from _too_long(attempt.pauses, allowed, "during the trial")
    for sample in timings.timed:
        yield from _too_long(sample.pauses, allowed, f"in repeat {sample.repeat}")


def _too_long(pauses: Iterable[Pause], allowed: Tolerances, when: str) -> Iterator[str]:
    for pause in pauses:
        if pause.suspended_s > allowed.paused_s:
            yield f"{pause.process}: its machine was suspended for {pause.suspended_s:.1f} s {when}"
        elif pause.lasted_s > allowed.paused_s and _is_stopped(pause):
            active = f"used {pause.cpu_s:.1f} s of CPU and waited {pause.waited_s:.1f} s for one"
            yield f"{pause.process}: the process was stopped for {pause.lasted_s:.1f} s (it {active}) {when}"


def _is_stopped(pause: Pause) -> bool:
    return pause.cpu_s + pause.waited_s < ACTIVE_SHARE * pause.lasted_s


def _fault_differences(
    trial: RequestedTrial, observed: ObservedFaults | None, timings: Timings
) -> Iterator[str]:
    """Yield a line for each fault that did not happen as requested."""
    timed = timings.timed
    repeats_s = max(sample.stop for sample in timed) - min(sample.start for sample in timed)
    for fault in trial.faults:
        observation = observed.hosts.get(fault.host) if observed else None
        if observation is None:
            yield f"requested {fault}, but it was not read back"
        elif difference := _fault_difference(fault, observation, repeats_s):
            yield f"requested {fault}, {difference}"


def _fault_difference(fault: Fault, observed: ObservedFault, repeats_s: float) -> str | None:
    """Return how a fault differs from the request. The end of the repeats may have ended it early."""
    requested_s = float(fault.at_s) if not isinstance(fault.at_s, tuple) else fault.at_s[0]
    if observed.at_s is None or observed.at_s > repeats_s:
        return f"but it did not happen: the repeats took {repeats_s:.2f} s"
    if observed.state not in (("down",) if fault.does == "cut" else KILLED_STATES):
        return f"but meanwhile it was {observed.state}"
    if abs(observed.at_s - requested_s) > FAULT_LATE_S:
        return f"it came at {observed.at_s:.2f} s"
    if fault.for_s is None:
        return None
    if observed.lasted_s is None:
        beyond_repeats = observed.at_s + fault.for_s + FAULT_LATE_S > repeats_s
        return None if beyond_repeats else f"it did not end within {repeats_s:.2f} s"
    if abs(observed.lasted_s - fault.for_s) > FAULT_LATE_S:
        return f"it lasted {observed.lasted_s:.2f} s"
    return None


def expected_workers(trial: RequestedTrial) -> range:
    """Return how many worker hosts may be left: killed ones are gone, others with a fault may be."""
    faulty = [fault for fault in trial.faults if fault.host != "scheduler"]
    killed = sum(fault.does == "kill" for fault in faulty)
    return range(trial.workers - len(faulty), trial.workers - killed + 1)


def reproduction(trial: RequestedTrial, seed: int) -> Iterator[str]:
    """Yield a failed trial's faults with the seed: enough to reproduce it."""
    if trial.faults:
        yield f"with {', '.join(map(str, trial.faults))} (seed {seed})"
