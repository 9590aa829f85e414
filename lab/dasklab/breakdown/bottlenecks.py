"""What the critical path speaks for: a culprit that one would look for, part by part.

A task that takes longer than its like elsewhere speaks for a slow worker or for something that holds the
interpreter, a wait for data for the link or for the placement that made it necessary. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from dasklab.breakdown.busy import Spells
from dasklab.breakdown.causes import (
    CLIENT,
    COMPUTE,
    DISK,
    LAG,
    LOGIC,
    LOOP,
    MESSAGE,
    PEER,
    RECEIVED,
    SERIALISE,
    TIMER,
    WIRE,
    Cell,
    Part,
)
from dasklab.breakdown.run import Run, Task

IDLE_LOOP = Spells()
LEAST_ALIKE = 5  # so many tasks of a kind tell what is usual
SLOWER = 1.25  # a worker whose tasks take so many times as long as elsewhere, in the median, is slow

SLOW, LINK, SCHEDULING, LATE, PLACEMENT = "slow worker", "link", "scheduler", "worker lag", "placement"
BUSY, OWN, ASKING, STORE, IDLE = "busy peers", "computing", "client", "disk", "idle"
CULPRITS = {
    SLOW: "computing that took longer than the same tasks elsewhere",
    LINK: "the wire",
    SCHEDULING: "the scheduler",
    LATE: "worker lag",
    PLACEMENT: "data that another placement would have spared",
    BUSY: "handing over data: busy peers, serialising, receiving",
    OWN: "computing",
    ASKING: "the client",
    STORE: "disk",
    IDLE: "idle",
}
OF_CAUSE = {
    WIRE: LINK, MESSAGE: LINK, LOGIC: SCHEDULING, LOOP: SCHEDULING, TIMER: SCHEDULING, LAG: LATE, PEER: BUSY,
    RECEIVED: BUSY, SERIALISE: BUSY, DISK: STORE, CLIENT: ASKING, COMPUTE: OWN,
}  # fmt: skip
OF_DATA = (WIRE, PEER, RECEIVED, SERIALISE)


def culprits(run: Run, path: Iterable[Part]) -> Iterable[tuple[str, str, float]]:
    """What each part of the critical path speaks for; a part may be shared out."""
    usual = _usual(run.tasks)
    for part in path:
        task, seconds = run.by_key.get(part.key), part.seconds
        if part.cause == COMPUTE and task is not None:
            took = max(task.stop - task.start, 1e-9)
            beyond = max(0.0, 1 - usual(task) / took)
            # While a task takes longer than usual and its worker's event loop is kept from running too, it is
            # not the work that is slow: something holds the interpreter.
            held = min(beyond, run.busy.get(part.place, IDLE_LOOP).within(task.start, task.stop) / took)
            yield LATE, part.place, seconds * held
            yield SLOW, part.place, seconds * (beyond - held)
            yield OWN, part.place, seconds * (1 - beyond)
        elif part.cause in OF_DATA and task is not None:
            spared = avoidable(task, run.threads)
            yield PLACEMENT, part.place, seconds * spared
            yield OF_CAUSE[part.cause], part.place, seconds * (1 - spared)
        else:
            yield OF_CAUSE.get(part.cause, IDLE), part.place, seconds


def avoidable(task: Task, workers: Iterable[str]) -> float:
    """The share of what a task had to fetch that it need not have fetched on the best worker for it."""

    def missing(worker: str) -> float:
        return sum(need.nbytes for need in task.needs if worker not in need.holders)

    ours = missing(task.worker)
    return 1 - min(map(missing, workers), default=ours) / ours if ours > 0 else 0.0


def _usual(tasks: Sequence[Task]) -> Callable[[Task], float]:
    """A function: how long a task like one takes on other workers.

    Only on workers that are slower for most of what they did, whatever its kind, is that less than it took.
    """
    lengths: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        lengths[task.prefix][task.worker].append(task.stop - task.start)
    others: dict[Cell, list[float]] = {}
    for prefix, by_worker in lengths.items():
        for worker in by_worker:
            some = [length for name, theirs in by_worker.items() if name != worker for length in theirs]
            if len(some) >= LEAST_ALIKE:
                others[prefix, worker] = some
    slow = {worker for worker in {worker for _, worker in others} if _is_slow(worker, lengths, others)}
    elsewhere = {cell: median(some) for cell, some in others.items()}

    def usual(task: Task) -> float:
        took = task.stop - task.start
        return elsewhere.get((task.prefix, task.worker), took) if task.worker in slow else took

    return usual


def _is_slow(
    worker: str, lengths: Mapping[str, Mapping[str, list[float]]], others: Mapping[Cell, list[float]]
) -> bool:
    """Does a worker take longer for most it did; or, where it did little, for all longer than anybody?"""
    did = [(took, others[p, worker]) for p in lengths if (p, worker) in others for took in lengths[p][worker]]
    if len(did) >= LEAST_ALIKE:
        return median(took / max(median(some), 1e-9) for took, some in did) > SLOWER
    return len(did) > 1 and all(took > max(some) for took, some in did)
