"""simulation.json: the outcome of a simulated trial."""

from __future__ import annotations

from typing import ClassVar

from dasklab.model.files.faults import ObservedFault
from dasklab.model.files.quantities import Amount, Count
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict


class SimulatedRepeat(Strict):
    """One repeat of the workload, in virtual time."""

    warmup: bool
    duration_s: Amount
    transfer_bytes: Count


class Outcome(Strict):
    """The outcome of one simulation, that is of one seed.

    Attributes:
        tasks: the number of tasks in one repeat, for workloads that measure time per task.
        digest: hash of the log of all deliveries.
        ops: the operations in all messages that a process wrote or read during the repeats, counted by
            ``costs.operations``.
        unknown: prefixes of tasks that the calibration does not know.
        computed: tasks that workers started during the repeats; each took ``handoff_s`` to pass from the
            event loop to its thread and back.
        scheduler_busy_s: how long the scheduler's event loop was busy.
        cpu_s, memory_mb: what the simulation itself used.
        failed: why the simulation did not complete its repeats; ``hung`` if they never ended.
        faults: what happened to the hosts whose faults were requested.
        workers: how many workers the scheduler had at the end.
    """

    seed: int
    repeats: tuple[SimulatedRepeat, ...]
    tasks: Count | None = None
    digest: str
    messages: Count
    ops: dict[str, Amount]
    unknown: tuple[str, ...]
    computed: Count = 0
    handoff_s: float = 0.0
    scheduler_busy_s: Amount = 0.0
    cpu_s: Amount
    memory_mb: Amount = 0.0
    failed: str | None = None
    hung: bool = False
    faults: dict[str, ObservedFault] = {}
    workers: int | None = None


class Simulation(Document):
    """The outcome for each seed of a simulated trial."""

    FILE: ClassVar[str] = "simulation.json"

    outcomes: tuple[Outcome, ...]
