"""What is simulated, as a file: everything that a simulation needs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dasklab.model.experiment import Workload
from dasklab.model.faults import Fault
from dasklab.model.link import Link
from dasklab.model.strict import Strict
from dasklab.sim.costs import Costs, Role

Record = tuple[float, float, int]  # seconds of a core, seconds of waiting, bytes of the result


class Site(Strict):
    """A rack: workers fill one after the other in their order; ``delay_ms`` is one way out or in."""

    workers: int = Field(ge=1)
    rate_mbit: float = Field(default=0, ge=0, description="of its way out and in, each; 0: unlimited")
    delay_ms: float = Field(default=0, ge=0)


class Scenario(Strict):
    """One simulated trial. Rates are of payload; a host without one, or with 0, is not limited.

    ``cores`` are shared by all machines, a part of one where other work has the rest; without, each machine
    has ``cores_each``, or enough.
    ``design``: workers are Dask's whole Worker, or only its state machine (for many).
    ``shuffled_bytes`` each task of a peer-to-peer shuffle gives away. ``late_s`` longer takes the first task
    of each worker; the last number is that of all that follow.
    ``driver_s`` is what the client computes before a run's graph is with the scheduler, ``handoff_s`` what
    a task waits for its thread. What is not done after ``limit_s`` of virtual time hangs.
    """

    workload: Workload
    workers: int = Field(ge=1)
    threads: int = Field(ge=1)
    runs: int = Field(ge=1)
    warmups: int = Field(ge=0)
    bridge: Literal["learning", "flooding"] = "learning"
    rates_mbit: dict[str, float] = {}
    links: dict[str, Link] = {}
    racks: tuple[Site, ...] = ()
    rtt_ms: float = Field(default=0.1, ge=0)
    queue_bytes: float = Field(default=0, ge=0)
    burst_bytes: float = Field(
        default=0, ge=0, description="what a cap lets a host send at once after a pause"
    )
    cores: float | None = Field(default=None, gt=0)
    cores_each: int | None = Field(default=None, ge=1)
    costs: dict[Role, Costs] = {}
    driver_s: float = Field(default=0, ge=0)
    handoff_s: float = Field(default=0, ge=0)
    tasks: dict[str, tuple[Record, ...]]
    shuffled_bytes: float = Field(default=0, ge=0)
    late_s: tuple[float, ...] = ()
    dask: dict[str, Any] = {}
    design: Literal["whole", "light"] = "whole"
    faults: tuple[Fault, ...] = ()
    limit_s: float = Field(default=86_400, gt=0)
    seed: int = 0

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The workers' names, as the inventory has them."""
        return tuple(f"worker-{number + 1}" for number in range(self.workers))
