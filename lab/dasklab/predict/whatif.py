"""Build a scenario from a measured trial, its calibration, and changed settings."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import Field

from dasklab.errors import LabError, did_you_mean
from dasklab.model.experiments.experiment import merge
from dasklab.model.experiments.foreign_code import code_of, require_trusted
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.forms.strict import Strict, validate
from dasklab.model.settings import faults
from dasklab.model.settings.hosts import expand_aliases, host_names
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import NicOverride
from dasklab.model.settings.simulated import unmodelled
from dasklab.model.settings.trial_settings import Settings
from dasklab.model.settings.variants import Layout, ResolvedScheduler
from dasklab.predict.calibration import Calibration
from dasklab.predict.core_waits import CoreWaits
from dasklab.predict.recorded import PREPARED_S
from dasklab.sim.scenario import Scenario, Site

PAYLOAD = 1448 / 1514  # share of a rate cap, which counts whole frames
SHORT_NAMES = {
    "lab_nic_rate_mbit": "nics.cluster.rate_mbit",
    "delay_ms": "links.cluster.delay_ms",
    "runs": "repeats",  # its earlier name
}
DASK_OWN = "distributed."  # how the names of Dask's settings begin
# Settings that the calibration holds for
FIXED = ("workload", "guests", "capture", "captured_repeats", "ttl_s", "probes", "scheduler", "worker",
         "layout", "packages", "performance_report", "py_spy", "faults")  # fmt: skip


class SimulationSettings(Strict):
    """Changes that only a simulation can make.

    Attributes:
        cores: cores that all machines share.
        cores_each: cores that each machine has for itself.
        starved: other load: seconds that a worker waits for a core, per second that it has one.
        rate_mbit: rate cap of all links.
        rate_times: factor on all rates, also of links without a rate cap.
        rtt_times: factor on the round trip and all delays.
        scheduler_speed: factor on the speed of the scheduler's core.
        worker_speed: factor on the speed of the workers' cores, tasks included.
    """

    workers: int | None = Field(default=None, ge=1, le=1_000)
    threads: int | None = Field(default=None, ge=1, le=1_000)
    cores: int | None = Field(default=None, ge=1)
    cores_each: int | None = Field(default=None, ge=1)
    starved: float | None = Field(default=None, ge=0)
    racks: tuple[Site, ...] = ()
    rtt_ms: float | None = Field(default=None, ge=0)
    rate_mbit: float | None = Field(default=None, gt=0)
    queue_bytes: float | None = Field(default=None, ge=0)
    rate_times: float = Field(default=1, gt=0)
    rtt_times: float = Field(default=1, gt=0)
    scheduler_speed: float = Field(default=1, gt=0)
    worker_speed: float = Field(default=1, gt=0)


def parse(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``("bridge=flooding", "nics.cluster.rate_mbit=100")`` into a nested mapping.

    Raises:
        LabError: one of them is not ``SETTING=VALUE``, or its value is not YAML.
    """
    changes: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise LabError(f"--set {text}: write it as SETTING=VALUE, for example lab_nic_rate_mbit=2500")
        if name.startswith(DASK_OWN):
            raise LabError(f"--set {text}: a setting of Dask begins with dask. Did you mean dask.{text}?")
        try:
            inner: Any = yaml.safe_load(value)
        except yaml.YAMLError:
            raise LabError(
                f"--set {text}: {value!r} is not a value; write lists and mappings as YAML"
            ) from None
        for key in reversed(SHORT_NAMES.get(name, name).split(".")):
            inner = {key: inner}
        changes = merge(changes, inner)
    return changes


def scenario(
    trial: RequestedTrial, calibration: Calibration, changes: dict[str, Any] | None = None, *, seed: int
) -> Scenario:
    """Return the scenario of a trial with changed settings.

    Args:
        trial: the trial that was measured.
        calibration: its costs, or those of an equal trial.
        changes: settings of an experiment and `SimulationSettings`, nested as `parse` returns them.
        seed: of the simulation.

    Raises:
        LabError: a setting is unknown, impossible or not simulated, or code of the trial is not trusted.
    """
    changes = changes or {}
    simulation, settings = check(trial, changes)
    require_trusted(code_of(trial))
    workers = simulation.workers or trial.workers
    links = _overlay(trial.links, expand_aliases(settings.links, workers, "--set links"))
    nics = expand_aliases(settings.nics, workers, "--set nics")
    rates = _rates(trial, nics, workers, calibration.uncapped_mbit, simulation.rate_mbit)
    waiting = core_waits(calibration, simulation)
    return Scenario(
        **shared_fields(calibration, simulation, workers, rates, links),
        workload=trial.workload,
        threads=simulation.threads or threads(trial, calibration),
        repeats=settings.repeats if "repeats" in changes else trial.repeats,
        warmups=settings.warmups if "warmups" in changes else trial.warmups,
        bridge=settings.bridge if "bridge" in changes else trial.bridge,
        driver_s=waiting.driver_s(),
        tasks={
            prefix: waiting.records(tasks, simulation.worker_speed)
            for prefix, tasks in calibration.tasks.items()
        },
        late_s=tuple(count * PREPARED_S for count in calibration.behind),
        dask=merge(merge(trial.dask, trial.resolved_scheduler.settings), settings.dask),
        faults=trial.faults,
        limit_s=trial.ttl_s if trial.faults else Scenario.model_fields["limit_s"].default,
        seed=seed,
    )


def shared_fields(
    calibration: Calibration,
    simulation: SimulationSettings,
    workers: int,
    rates_mbit: dict[str, float],
    links: dict[str, Link],
) -> dict[str, Any]:
    """Return the fields of a scenario that a trial and a record determine alike."""
    waiting = core_waits(calibration, simulation)
    rtt_ms = calibration.rtt_ms if simulation.rtt_ms is None else simulation.rtt_ms
    queue_bytes = calibration.queue_bytes if simulation.queue_bytes is None else simulation.queue_bytes
    return {
        "workers": workers,
        "rates_mbit": {host: rate * simulation.rate_times for host, rate in rates_mbit.items()},
        "links": {host: _scaled(link, simulation) for host, link in links.items() if not link.clear},
        "racks": simulation.racks,
        "rtt_ms": rtt_ms * simulation.rtt_times,
        "queue_bytes": queue_bytes,
        "burst_bytes": calibration.burst_bytes,
        "cores": waiting.shared_cores(workers),
        "cores_each": simulation.cores_each,
        "costs": waiting.costs(simulation.scheduler_speed, simulation.worker_speed),
        "handoff_s": waiting.handoff_s(simulation.worker_speed),
        "shuffled_bytes": calibration.shuffled_bytes,
    }


def core_waits(calibration: Calibration, simulation: SimulationSettings) -> CoreWaits:
    return CoreWaits(calibration, simulation.cores, simulation.cores_each, simulation.starved)


def check(trial: RequestedTrial, changes: dict[str, Any]) -> tuple[SimulationSettings, Settings]:
    """Validate changes as far as that is possible without a calibration, which takes long.

    Returns:
        The changes that only a simulation can make, and the changed settings of the experiment.

    Raises:
        LabError: a setting is unknown, impossible or not simulated.
    """
    for reason in unmodelled(trial, trial.resolved_scheduler):
        raise LabError(f"{trial.trial}: {reason}")
    own = {key: value for key, value in changes.items() if key in SimulationSettings.model_fields}
    simulation = validate(SimulationSettings, own, "--set")
    workers = simulation.workers or trial.workers
    settings = _settings({key: value for key, value in changes.items() if key not in own})
    for reason in unmodelled(settings, ResolvedScheduler()):
        raise LabError(f"--set {reason}")
    _overlay(trial.links, expand_aliases(settings.links, workers, "--set links"))
    expand_aliases(settings.nics, workers, "--set nics")
    _, scheduler, *others = host_names(workers)
    if problem := faults.find_mistake(trial.faults, scheduler, others):
        raise LabError(f"--set workers: {problem}")
    return simulation, settings


def threads(trial: RequestedTrial, calibration: Calibration) -> int:
    """Return the threads of each worker: those of the trial's layout, or else of the calibrated trial."""
    return Layout.parse(trial.layout).threads if trial.layout else calibration.threads


def _settings(changes: dict[str, Any]) -> Settings:
    for key in FIXED:
        if key in changes:
            raise LabError(
                f"--set {key}: it cannot be changed, because the calibration holds for this one only"
            )
    allowed = [key for key in Settings.model_fields if key not in FIXED]
    for key in changes:
        if key not in allowed:
            names = sorted({*allowed, *SimulationSettings.model_fields, *SHORT_NAMES})
            hint = did_you_mean(key, names)
            raise LabError(f"--set {key}: unknown setting; allowed: {', '.join(names)}{hint}")
    return validate(Settings, changes, "--set")


def _overlay(links: dict[str, Link], changes: dict[str, Link]) -> dict[str, Link]:
    """Return each host's link with the changed keys replaced."""
    result = dict(links)
    for host, change in changes.items():
        keys = change.model_dump(exclude_unset=True)
        result[host] = validate(Link, links.get(host, Link()).model_dump() | keys, f"--set links.{host}")
    return result


def _rates(
    trial: RequestedTrial,
    changes: dict[str, NicOverride],
    workers: int,
    uncapped_mbit: float,
    all_mbit: float | None,
) -> dict[str, float]:
    """Return the payload rate of each host's link. Additional workers have the NIC of the first one.

    ``all_mbit`` is the cap of the links that ``changes`` does not name.
    """
    first = trial.nics.get("worker-1")
    rates = {}
    for host in host_names(workers):
        card = trial.nics.get(host, first if host.startswith("worker-") else None)
        cap = all_mbit or (card.rate_mbit if card else 0.0)
        changed = changes[host].rate_mbit if host in changes else None
        cap = cap if changed is None else changed
        rates[host] = cap * PAYLOAD if cap else uncapped_mbit
        if cap and uncapped_mbit:
            rates[host] = min(rates[host], uncapped_mbit)
    return rates


def _scaled(link: Link, simulation: SimulationSettings) -> Link:
    """Return a link with its rate and delays multiplied."""
    return link.model_copy(
        update={
            "rate_mbit": link.rate_mbit * simulation.rate_times,
            "delay_ms": link.delay_ms * simulation.rtt_times,
            "jitter_ms": link.jitter_ms * simulation.rtt_times,
        }
    )
