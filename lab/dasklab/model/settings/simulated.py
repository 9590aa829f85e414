"""A lab in virtual time: where its costs come from, and which settings it accepts; pure.

The simulation refuses what it does not model. So the lists here say what it models; a setting or an
impairment that somebody adds to the lab is refused until it is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from dasklab.model.forms.strict import Strict
from dasklab.model.settings.dask_settings import defaults, flatten
from dasklab.model.settings.impairments import IMPAIRMENTS
from dasklab.model.settings.link import Link
from dasklab.model.settings.packages import unpinned
from dasklab.model.settings.trial_settings import Settings, SharedSettings, Workload
from dasklab.model.settings.variants import Layout, ResolvedScheduler

VARIANTS = (None, "dask", "no-queuing", "no-stealing")  # the scheduler variants that differ in settings only
MODELLED_LINK = {"direction", *(impairment.key for impairment in IMPAIRMENTS if impairment.simulated)}
MODELLED_FAULTS = {"kill", "restart", "cut"}
MODELLED = {"bridge", "workers", "repeats", "warmups", "dask"}
# Modelled in part
CHECKED = {"workload", "packages", "scheduler", "worker", "layout", "faults", "engine", "spark"}
WITHOUT_EFFECT_ON_LENGTH = {"ttl_s", "probes", "capture", "performance_report", "py_spy"}
# Settings that Dask's own scheduler and workers read in the simulation, with everything below them. Not here:
# compression (data has no content), memory (it does not fill), event loops (they are virtual).
MODELLED_DASK = (
    "distributed.comm.retry",
    "distributed.comm.timeouts",
    "distributed.p2p.comm",
    "distributed.scheduler.active-memory-manager",
    "distributed.scheduler.allowed-failures",
    "distributed.scheduler.bandwidth",
    "distributed.scheduler.default-data-size",
    "distributed.scheduler.default-task-durations",
    "distributed.scheduler.rootish-taskgroup",
    "distributed.scheduler.rootish-taskgroup-dependencies",
    "distributed.scheduler.unknown-task-duration",
    "distributed.scheduler.work-stealing",
    "distributed.scheduler.work-stealing-interval",
    "distributed.scheduler.worker-saturation",
    "distributed.scheduler.worker-ttl",
    "distributed.worker.connections",
    "distributed.worker.transfer",
)


class SimulatedSetup(Strict):
    """What makes a lab a simulated one: its costs are those of ``origin``, a measured run or trial.

    ``workloads`` are those that were calibrated there. The repeats of a trial are divided among ``seeds``
    simulations. ``prediction_error`` is the share by which simulations were off in validation, as of the
    start of the run.
    """

    origin: str
    workloads: tuple[Workload, ...]
    seeds: int = Field(ge=1)
    prediction_error: float = Field(default=0, ge=0)

    def unsupported(self, requested: Settings) -> Iterator[str]:
        """Yield a reason for each of the settings that cannot be simulated."""
        if requested.workload not in self.workloads:
            params = ", ".join(f"{key} {value}" for key, value in requested.workload.params.items())
            with_params = f" with {params}" if params else ""
            yield f"workload {requested.workload.name}{with_params}: no trial of {self.origin} has its costs"
        yield from unmodelled(requested, requested.scheduler.resolve())
        for host, link in requested.links.items():
            yield from unmodelled_link(host, link)


def unmodelled(requested: SharedSettings, scheduler: ResolvedScheduler) -> Iterator[str]:
    """Yield a reason for each setting of the cluster or its work that cannot be simulated."""
    if requested.engine != "dask":
        yield f"engine {requested.engine} is not simulated, only Dask is"
    zero = requested.worker.variant != "dask"
    if zero or scheduler.command or scheduler.preload or scheduler.variant not in VARIANTS:
        yield "a cluster with other programs than Dask's scheduler and workers is not simulated"
    if requested.layout and Layout.parse(requested.layout).processes > 1:
        yield f"several workers on a host ({requested.layout}) are not simulated"
    for name, version in unpinned(requested.packages).items():
        yield f"{name} {version} is not simulated, only the installed version is"
    for fault in sorted({fault.does for fault in requested.faults} - MODELLED_FAULTS):
        yield f"fault {fault}: the simulation does not model it"
    for name, value in flatten(requested.dask):
        modelled = any(f"{name}.".startswith(f"{prefix}.") for prefix in MODELLED_DASK)
        if not modelled and value != defaults().get(name):
            yield f"dask {name}: the simulation does not model it"
    for name, field in SharedSettings.model_fields.items():
        if (
            name not in MODELLED | CHECKED | WITHOUT_EFFECT_ON_LENGTH
            and getattr(requested, name) != field.default
        ):
            yield f"{name}: the simulation does not model it"


def unmodelled_link(host: str, link: Link) -> Iterator[str]:
    """Yield a reason for each part of a link's impairment that cannot be simulated."""
    for name, field in Link.model_fields.items():
        if name not in MODELLED_LINK and getattr(link, name) != field.default:
            yield f"links.{host}.{name}: the simulation does not model it"
