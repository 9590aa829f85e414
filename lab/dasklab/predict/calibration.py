"""What is taken over from a measured trial, as a file: its tasks, what messages cost, its network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import ClassVar, Literal

from pydantic import Field

from dasklab.model.document import Document
from dasklab.model.files import Amount, Count
from dasklab.model.strict import Strict
from dasklab.sim.costs import Costs, Role


class Tasks(Strict):
    """Tasks of one key prefix: (seconds of a thread, bytes of the result) of each that was recorded.

    ``cpu_share`` of these seconds a core computed; the rest was waiting, also for a core.
    """

    seen: tuple[tuple[Amount, Count], ...]
    cpu_share: float = Field(ge=0, le=1)


class Calibration(Document):
    """A trial's own costs.

    ``cores`` are those that all its machines shared, where that is known, less what other work took of them;
    then the simulation has as many, and waiting for them is its own. ``loop_cpu`` is which share of what kept
    event loops busy a core computed, ``starved`` how many seconds workers waited for a core for each that
    they had one, ``driver_s`` what the client took before the scheduler had a run's graph and after its last
    task, ``free_mbit`` what links without a cap delivered (0: not measured). ``shuffled_bytes`` each transfer
    task of a peer-to-peer shuffle gave away. ``behind``: of what was computed before the runs each worker,
    by name, holds so many results fewer than the one that has most. ``handoff_s`` passes between a worker's
    loop and the thread of a task, there and back, beyond what simulations find themselves. The trial had
    so many ``workers`` (0: not written down). ``queue_bytes`` stand before a full link; they are measured
    where pings under load say so.
    """

    FILE: ClassVar[str] = "calibration.json"

    experiment: str
    trial: str
    cell: str
    machine: str
    versions: dict[str, str]
    tasks: dict[str, Tasks]
    shuffled_bytes: Amount = 0.0
    behind: tuple[Count, ...] = ()
    starved: Amount
    costs: dict[Role, Costs]
    loop_cpu: dict[Role, float] = {}
    cores: float | None = Field(default=None, gt=0)
    driver_s: float
    handoff_s: float = 0.0
    workers: Count = 0
    threads: Count
    rtt_ms: Amount
    free_mbit: Amount
    burst_bytes: Amount
    queue_bytes: Amount
    queue_origin: Literal["measured", "assumed"] = "assumed"


def dealt(calibrations: Sequence[Calibration], seeds: Iterable[int]) -> Iterator[tuple[Calibration, int]]:
    """Seeds in turn to the calibrations of like trials: what is foretold differs by what such trials do."""
    return zip(cycle(calibrations), seeds, strict=False)
