"""A lab in virtual time: where its numbers come from, and what it can be asked for; pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from dasklab.model.dask_settings import flat
from dasklab.model.experiment import Settings, Shared, Workload
from dasklab.model.link import Link
from dasklab.model.packages import resolved
from dasklab.model.strict import Strict
from dasklab.model.variants import Layout, ResolvedScheduler

MANY = 100  # workers from which on they are only state machines
OCCUPANTS = (None, "dask", "no-queuing", "no-stealing")  # the others are more than settings
UNMODELLED_LINK = ("reorder_pct", "peer", "policer")
UNMODELLED_DASK = (  # no data has content, no memory fills, and there is no event loop but virtual ones
    "distributed.comm.compression",
    "distributed.worker.memory",
    "distributed.admin.event-loop",
)


class Simulated(Strict):
    """What makes a lab a simulated one: its costs are those of ``origin``, a measured run or trial.

    ``workloads`` are those that were calibrated there; a trial's runs are dealt to ``seeds`` simulations.
    ``prediction_error`` is the share by which simulations were off in validation, as of the start of the run.
    """

    origin: str
    workloads: tuple[Workload, ...]
    seeds: int = Field(ge=1)
    prediction_error: float = Field(default=0, ge=0)

    def cannot(self, asked: Settings) -> Iterator[str]:
        """What of these settings is not simulated, in words."""
        if asked.workload not in self.workloads:
            params = ", ".join(f"{key} {value}" for key, value in asked.workload.params.items())
            with_params = f" with {params}" if params else ""
            yield f"workload {asked.workload.name}{with_params}: no trial of {self.origin} tells its costs"
        yield from unmodelled(asked, asked.scheduler.resolve())
        if asked.faults and asked.workers > MANY:
            yield f"faults among more than {MANY} workers: so many have no connections that could break"
        for host, link in asked.links.items():
            yield from unmodelled_link(host, link)


def unmodelled(asked: Shared, scheduler: ResolvedScheduler) -> Iterator[str]:
    """What of a cluster or its work is not simulated, in words."""
    if asked.engine != "dask":
        yield f"engine {asked.engine} is not simulated, only Dask is"
    zero = asked.worker.variant != "dask"
    if zero or scheduler.command or scheduler.preload or scheduler.variant not in OCCUPANTS:
        yield "a cluster of others than Dask's scheduler and workers is not simulated"
    if asked.layout and Layout.parse(asked.layout).processes > 1:
        yield f"several workers on a host ({asked.layout}) are not simulated"
    for name, version in resolved(asked.packages).items():
        yield f"{name} {version} is not simulated, only what is installed here"
    for name, value in flat(asked.dask):
        if value and name.startswith(UNMODELLED_DASK):
            yield f"dask {name}: the simulation does not know it"


def unmodelled_link(host: str, link: Link) -> Iterator[str]:
    """What of a link's impairments is not simulated, in words."""
    for key in UNMODELLED_LINK:
        if getattr(link, key):
            yield f"links.{host}.{key}: the simulation does not know it"
