"""The scenario: a file with everything that one simulation needs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dasklab.errors import LabError
from dasklab.model.forms.strict import Strict
from dasklab.model.settings.faults import Fault, find_mistake
from dasklab.model.settings.link import Link
from dasklab.model.settings.trial_settings import Workload
from dasklab.sim.costs import Costs, Role
from dasklab.sim.program import Program, Record


class Site(Strict):
    """A rack. Workers fill the racks in order; ``delay_ms`` is what the uplink adds in one direction."""

    workers: int = Field(ge=1)
    rate_mbit: float = Field(default=0, ge=0, description="of the uplink, each direction; 0: unlimited")
    delay_ms: float = Field(default=0, ge=0)


class Scenario(Strict):
    """One simulated trial.

    No number is infinite or NaN. No attribute is sorted, unless it says so.

    Attributes:
        workload: what the client computes: code, or a program that was recorded.
        workers, threads: number of workers, and of threads of each.
        repeats, warmups: number of timed computations, and of those before them that are not timed.
        bridge: ``flooding``: every frame goes to every port.
        rates_mbit: payload rate of links, in Mbit/s, by machine. A machine without one, or with 0, is not
            limited. A machine that is not simulated may have one; it has no effect.
        links: impairments by machine. A machine that is not simulated may have some; they have no effect.
        racks: in the order in which the workers fill them. None, or they hold all workers.
        rtt_ms: round trip of the idle network.
        queue_bytes: standing queue in front of a saturated link.
        burst_bytes: what a rate cap lets a machine send at once after a pause.
        cores: cores that all machines share. A fraction means that other processes take the rest of a core.
            None: each machine has ``cores_each`` of its own, or as many as it needs.
        costs: CPU costs by role; a role without them has none.
        driver_s: how long the client computes before the scheduler has a repeat's graph.
        handoff_s: how long a task waits for its thread.
        tasks: by key prefix, records of which each task draws one. Equal records may repeat. A task of
            another prefix draws from all records, so there is at least one. A program has its own instead.
        shuffled_bytes: bytes that each transfer task of a peer-to-peer shuffle sends to all workers.
        late_s: how much longer each worker's first task takes, in the order of the workers; never negative.
            The last number holds for all further workers.
        dask: Dask's settings, nested.
        faults: at most one for each machine, each at a moment that is already drawn.
        limit_s: virtual time after which the simulation is considered hung.
        seed: of the dice. The same scenario with the same seed gives the same events at the same times.
    """

    workload: Workload | Program
    workers: int = Field(ge=1)
    threads: int = Field(ge=1)
    repeats: int = Field(ge=1)
    warmups: int = Field(ge=0)
    bridge: Literal["learning", "flooding"] = "learning"
    rates_mbit: dict[str, float] = {}
    links: dict[str, Link] = {}
    racks: tuple[Site, ...] = ()
    rtt_ms: float = Field(default=0.1, ge=0)
    queue_bytes: float = Field(default=0, ge=0)
    burst_bytes: float = Field(default=0, ge=0)
    cores: float | None = Field(default=None, gt=0)
    cores_each: int | None = Field(default=None, ge=1)
    costs: dict[Role, Costs] = {}
    driver_s: float = Field(default=0, ge=0)
    handoff_s: float = Field(default=0, ge=0)
    tasks: dict[str, tuple[Record, ...]] = {}
    shuffled_bytes: float = Field(default=0, ge=0)
    late_s: tuple[float, ...] = ()
    dask: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()
    limit_s: float = Field(default=86_400, gt=0)
    seed: int = 0

    @property
    def workload_name(self) -> str:
        """The name of the workload; ``record`` for a program that was recorded."""
        return "record" if isinstance(self.workload, Program) else self.workload.name

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The workers' names, as in an inventory."""
        return tuple(f"worker-{number + 1}" for number in range(self.workers))

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of all machines."""
        return ("scheduler", "client", *self.worker_names)

    def check(self) -> None:
        """Check what always holds of a scenario, beyond the limits of single attributes.

        Raises:
            LabError: something does not; the message names the attribute.
        """
        places = sum(rack.workers for rack in self.racks)
        if self.racks and places < self.workers:
            raise LabError(f"racks: they hold {places} workers, there are {self.workers}")
        if isinstance(self.workload, Program):
            self.workload.check()
        elif not any(self.tasks.values()):
            raise LabError("tasks: there is no record of a task; at least one is needed")
        for prefix, records in self.tasks.items():
            if any(number < 0 for record in records for number in record):
                raise LabError(f"tasks.{prefix}: a record has a negative number; allowed: 0 and more")
        for name, numbers in (("rates_mbit", [*self.rates_mbit.values()]), ("late_s", [*self.late_s])):
            if min(numbers, default=0) < 0:
                raise LabError(f"{name}: {min(numbers)} is negative; allowed: 0 and more")
        if mistake := find_mistake(self.faults, "scheduler", self.worker_names):
            raise LabError(mistake)
        if late := [str(fault.host) for fault in self.faults if isinstance(fault.at_s, tuple)]:
            raise LabError(f"faults: the moment of {', '.join(late)} is a range; draw it first")
