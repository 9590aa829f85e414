"""From a measured trial, its calibration and changes (settings as in experiments) to a scenario."""

from __future__ import annotations

from typing import Any, Literal

import yaml
from pydantic import Field

from dasklab.errors import LabError, did_you_mean
from dasklab.model import faults
from dasklab.model.experiment import merge
from dasklab.model.hosts import expand_aliases, host_names
from dasklab.model.link import Link
from dasklab.model.nic import NicOverride
from dasklab.model.settings import Settings
from dasklab.model.simulated import MANY, unmodelled
from dasklab.model.strict import Strict, validate
from dasklab.model.trial import Trial
from dasklab.model.variants import Layout, ResolvedScheduler
from dasklab.predict.calibration import Calibration, Tasks
from dasklab.predict.recorded import PREPARED_S
from dasklab.sim.costs import IDLE_WORKER, Costs, Role
from dasklab.sim.scenario import Record, Scenario, Site

PAYLOAD = 1448 / 1514  # of what a cap lets through: it counts whole frames
SHORT = {"lab_nic_rate_mbit": "nics.cluster.rate_mbit", "delay_ms": "links.cluster.delay_ms"}
FIXED = ("workload", "guests", "capture", "captured_runs", "ttl_s", "probes", "scheduler", "worker", "layout",
         "packages", "performance_report", "py_spy", "faults")  # fmt: skip


class Simulated(Strict):
    """Changes that only a simulation can make; ``cores`` are those of one host under all machines.

    ``cores_each`` is what each machine has for itself.
    ``starved`` is the machine's other load: seconds that a worker waits for a core for each that it has one.
    ``rate_times`` and ``rtt_times`` are times all rates and delays as they are, also of links without a cap;
    speeds are those of a core, times as it was: of the scheduler, and of workers with their tasks.
    """

    workers: int | None = Field(default=None, ge=1, le=10_000)
    threads: int | None = Field(default=None, ge=1, le=1_000)
    cores: int | None = Field(default=None, ge=1)
    cores_each: int | None = Field(default=None, ge=1)
    starved: float | None = Field(default=None, ge=0)
    racks: tuple[Site, ...] = ()
    rtt_ms: float | None = Field(default=None, ge=0)
    queue_bytes: float | None = Field(default=None, ge=0)
    rate_times: float = Field(default=1, gt=0)
    rtt_times: float = Field(default=1, gt=0)
    scheduler_speed: float = Field(default=1, gt=0)
    worker_speed: float = Field(default=1, gt=0)
    design: Literal["whole", "light"] | None = None


def parse(given: tuple[str, ...]) -> dict[str, Any]:
    """``("bridge=flooding", "nics.cluster.rate_mbit=100")`` as a nested mapping.

    Raises:
        LabError: it is not of this form.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise LabError(f"--set {text}: write it as SETTING=VALUE, as lab_nic_rate_mbit=2500")
        try:
            inner: Any = yaml.safe_load(value)
        except yaml.YAMLError:
            raise LabError(f"--set {text}: {value!r} is no value; lists and mappings are YAML") from None
        for key in reversed(SHORT.get(name, name).split(".")):
            inner = {key: inner}
        found = merge(found, inner)
    return found


def scenario(
    trial: Trial, calibration: Calibration, changes: dict[str, Any] | None = None, *, seed: int
) -> Scenario:
    """What is to be simulated.

    Raises:
        LabError: a change is unknown or impossible.
    """
    changes = changes or {}
    ours, asked = check(trial, changes)
    workers = ours.workers or trial.workers
    links = _over(trial.links, expand_aliases(asked.links, workers, "--set links"), Link())
    rates = _rates(trial, expand_aliases(asked.nics, workers, "--set nics"), workers, calibration.free_mbit)
    rtt_ms = calibration.rtt_ms if ours.rtt_ms is None else ours.rtt_ms
    return Scenario(
        workload=trial.workload,
        workers=workers,
        threads=ours.threads or threads(trial, calibration),
        runs=asked.runs if "runs" in changes else trial.runs,
        warmups=asked.warmups if "warmups" in changes else trial.warmups,
        bridge=asked.bridge if "bridge" in changes else trial.bridge,
        rates_mbit={host: rate * ours.rate_times for host, rate in rates.items()},
        links={host: _times(link, ours) for host, link in links.items() if not link.clear},
        racks=ours.racks,
        rtt_ms=rtt_ms * ours.rtt_times,
        queue_bytes=calibration.queue_bytes if ours.queue_bytes is None else ours.queue_bytes,
        burst_bytes=calibration.burst_bytes,
        cores=_cores_left(calibration, ours, workers),
        cores_each=ours.cores_each,
        costs=_costs(calibration, ours),
        driver_s=_driver_s(calibration, ours),
        handoff_s=_handoff_s(calibration, ours),
        tasks={prefix: _records(calibration, ours, tasks) for prefix, tasks in calibration.tasks.items()},
        shuffled_bytes=calibration.shuffled_bytes,
        late_s=tuple(count * PREPARED_S for count in calibration.behind),
        dask=merge(merge(trial.dask, trial.resolved_scheduler.settings), asked.dask),
        design=_design(ours, workers),
        faults=trial.faults,
        limit_s=trial.ttl_s if trial.faults else Scenario.model_fields["limit_s"].default,
        seed=seed,
    )


def check(trial: Trial, changes: dict[str, Any]) -> tuple[Simulated, Settings]:
    """Validate changes, as far as that goes without a calibration: before the work that one takes.

    Returns:
        The changes that only a simulation can make, and those of settings.

    Raises:
        LabError: a change is unknown or impossible.
    """
    for reason in unmodelled(trial, trial.resolved_scheduler):
        raise LabError(f"{trial.trial}: {reason}")
    extra = {key: value for key, value in changes.items() if key in Simulated.model_fields}
    ours = validate(Simulated, extra, "--set")
    workers = ours.workers or trial.workers
    asked = _asked({key: value for key, value in changes.items() if key not in extra})
    for reason in unmodelled(asked, ResolvedScheduler()):
        raise LabError(f"--set {reason}")
    _over(trial.links, expand_aliases(asked.links, workers, "--set links"), Link())
    expand_aliases(asked.nics, workers, "--set nics")
    _, scheduler, *others = host_names(workers)
    if wrong := faults.find_mistake(trial.faults, scheduler, others):
        raise LabError(f"--set workers: {wrong}")
    if trial.faults and _design(ours, workers) == "light":
        raise LabError("faults: workers that are only state machines have no connections that could break")
    return ours, asked


def _design(ours: Simulated, workers: int) -> Literal["whole", "light"]:
    return ours.design or ("light" if workers > MANY else "whole")


def threads(trial: Trial, calibration: Calibration) -> int:
    """Of each worker: as many as the trial's layout says; without one as it came in the calibrated trial."""
    return Layout.parse(trial.layout).threads if trial.layout else calibration.threads


def _asked(changes: dict[str, Any]) -> Settings:
    for key in FIXED:
        if key in changes:
            raise LabError(f"--set {key}: it cannot be changed, the calibration holds for this one")
    allowed = [key for key in Settings.model_fields if key not in FIXED]
    for key in changes:
        if key not in allowed:
            every = sorted({*allowed, *Simulated.model_fields, *SHORT})
            hint = did_you_mean(key, every)
            raise LabError(f"--set {key}: unknown setting; allowed: {', '.join(every)}{hint}")
    return validate(Settings, changes, "--set")


def _over(base: dict[str, Link], changed: dict[str, Link], clear: Link) -> dict[str, Link]:
    """Changes laid over each host's own, key by key."""
    found = dict(base)
    for host, link in changed.items():
        said = link.model_dump(exclude_unset=True)
        found[host] = validate(Link, base.get(host, clear).model_dump() | said, f"--set links.{host}")
    return found


def _rates(trial: Trial, changed: dict[str, NicOverride], workers: int, free_mbit: float) -> dict[str, float]:
    """Payload rates; a worker more has the first one's card."""
    first = trial.nics.get("worker-1")
    rates = {}
    for host in host_names(workers):
        card = trial.nics.get(host, first if host.startswith("worker-") else None)
        cap = card.rate_mbit if card else 0.0
        given = changed[host].rate_mbit if host in changed else None
        cap = cap if given is None else given
        rates[host] = cap * PAYLOAD if cap else free_mbit
        if cap and free_mbit:
            rates[host] = min(rates[host], free_mbit)
    return rates


def _times(link: Link, ours: Simulated) -> Link:
    """A link with the same impairments, its rate and delays times as much."""
    return link.model_copy(
        update={
            "rate_mbit": link.rate_mbit * ours.rate_times,
            "delay_ms": link.delay_ms * ours.rtt_times,
            "jitter_ms": link.jitter_ms * ours.rtt_times,
        }
    )


def _cores_said(ours: Simulated) -> bool:
    """Is it asked for other cores, or for other waiting for them?"""
    return ours.cores is not None or ours.cores_each is not None or ours.starved is not None


def _cores(calibration: Calibration, ours: Simulated) -> float | None:
    """Those under all machines: as many as there were, unless others are asked for."""
    return ours.cores if _cores_said(ours) else calibration.cores


def _cores_left(calibration: Calibration, ours: Simulated, workers: int) -> float | None:
    """Less what workers take that were not there when it was measured, with nothing to do."""
    cores = _cores(calibration, ours)
    more = workers - calibration.workers if calibration.workers else 0
    if cores is None or more <= 0:
        return cores
    if cores <= more * IDLE_WORKER:
        raise LabError(
            f"--set workers={workers}: on {cores:.1f} cores so many take all of them with nothing to do",
            "say how many cores there are: --set cores=N for all machines, or cores_each=N",
        )
    return cores - more * IDLE_WORKER


def _as_it_was(calibration: Calibration, ours: Simulated) -> bool:
    """Is waiting for a core left in times as it was recorded?"""
    return calibration.cores is None and not _cores_said(ours)


def _starved(calibration: Calibration, ours: Simulated) -> float:
    """Seconds of waiting for a core for each second on one; where cores are simulated, that finds itself."""
    if _as_it_was(calibration, ours):
        return calibration.starved
    return ours.starved or 0.0


def _driver_s(calibration: Calibration, ours: Simulated) -> float:
    """As it was: others do nothing while the client builds a graph. But other load is there then, too."""
    if ours.starved is None:
        return calibration.driver_s
    return calibration.driver_s * _waiting(calibration, ours.starved)


def _handoff_s(calibration: Calibration, ours: Simulated) -> float:
    """As it was; with other cores, without the waiting for one that is in it, and with what is asked for."""
    waiting = _waiting(calibration, ours.starved or 0.0) if _cores_said(ours) else 1.0
    return calibration.handoff_s * waiting / ours.worker_speed


def _waiting(calibration: Calibration, starved: float) -> float:
    """Times what it took, a core and the waiting for it together, with so much waiting instead."""
    return (1 + starved) / (1 + calibration.starved)


def _records(calibration: Calibration, ours: Simulated, tasks: Tasks) -> tuple[Record, ...]:
    """As they were, waiting for a core included; or with that taken off and what is asked for put on."""
    if _as_it_was(calibration, ours) and ours.worker_speed == 1:
        return tuple((0.0, took, nbytes) for took, nbytes in tasks.seen)
    cpu = tasks.cpu_share / ours.worker_speed
    neither = max(0.0, 1 - tasks.cpu_share * (1 + calibration.starved))
    idle = neither + cpu * _starved(calibration, ours)
    return tuple((took * cpu, took * idle, nbytes) for took, nbytes in tasks.seen)


def _costs(calibration: Calibration, ours: Simulated) -> dict[Role, Costs]:
    speeds = {"scheduler": ours.scheduler_speed, "worker": ours.worker_speed}
    times = {role: _load(calibration, ours, role) / speeds.get(role, 1.0) for role in calibration.costs}
    return {
        role: Costs(op_s=cost.op_s * times[role], byte_s=cost.byte_s * times[role])
        for role, cost in calibration.costs.items()
    }


def _load(calibration: Calibration, ours: Simulated, role: Role) -> float:
    """Times what kept an event loop busy in the trial: its CPU, and the waiting that is asked for."""
    if _as_it_was(calibration, ours):
        return 1.0
    cpu = calibration.loop_cpu.get(role, 1 / (1 + calibration.starved))
    return cpu * (1 + _starved(calibration, ours))
