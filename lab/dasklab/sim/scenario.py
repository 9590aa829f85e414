"""The scenario: a file with everything that one simulation needs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dasklab.model.faults import Fault
from dasklab.model.link import Link
from dasklab.model.settings import Workload
from dasklab.model.strict import Strict
from dasklab.sim.costs import Costs, Role

Record = tuple[float, float, int]  # CPU seconds, seconds of waiting, bytes of the result


class Site(Strict):
    """A rack. Workers fill the racks in order; ``delay_ms`` is what the uplink adds in one direction."""

    workers: int = Field(ge=1)
    rate_mbit: float = Field(default=0, ge=0, description="of the uplink, each direction; 0: unlimited")
    delay_ms: float = Field(default=0, ge=0)


class Scenario(Strict):
    """One simulated trial.

    Attributes:
        rates_mbit: payload rate of each machine's link; a machine without one, or with 0, is not limited.
        rtt_ms: round trip of the idle network.
        queue_bytes: standing queue in front of a saturated link.
        cores: cores that all machines share. A fraction means that other processes take the rest of a core.
            None: each machine has ``cores_each`` of its own, or as many as it needs.
        driver_s: how long the client computes before the scheduler has a run's graph.
        handoff_s: how long a task waits for its thread.
        tasks: by key prefix, records of which each task draws one.
        shuffled_bytes: bytes that each transfer task of a peer-to-peer shuffle sends to all workers.
        late_s: how much longer each worker's first task takes; the last number holds for all further workers.
        design: ``whole`` simulates Dask's whole Worker, ``light`` only its state machine
            (for thousands of workers).
        limit_s: virtual time after which the simulation is considered hung.
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
        default=0, ge=0, description="what a rate cap lets a machine send at once after a pause"
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
        """The workers' names, as in an inventory."""
        return tuple(f"worker-{number + 1}" for number in range(self.workers))

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of all machines."""
        return ("scheduler", "client", *self.worker_names)
