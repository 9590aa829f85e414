"""Rules about graphs and tasks: their number and size, and what they wait for while they keep a thread."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.kinds import OVERLAP, TASK_SHUFFLE, share_of
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.model.causes import (
    BUILD,
    GRAPHS,
    HOLDING,
    LAG,
    LOCK,
    LOGIC,
    LOOP,
    MESSAGE,
    PLAN,
    SCHEDULING,
    TIMER,
    UPLOAD,
    WORKER_LAG,
)
from dasklab.breakdown.model.repeat import Repeat
from dasklab.terminal import data_size

GRAPH_BYTES = 10_000_000  # Dask warns of larger ones, too
GRAPH_TASKS = 10_000
SMALL_TASK_S, LEAST_SMALL = 0.01, 100


def _large_graphs(case: Measurements) -> Symptom | None:
    nbytes = sum(graph.nbytes for graph in case.repeat.graphs)
    if nbytes < GRAPH_BYTES:
        return None
    return _graph_work(case, data_size(nbytes))


def _many_tasks(case: Measurements) -> Symptom | None:
    tasks = sum(graph.tasks for graph in case.repeat.graphs)
    if tasks < GRAPH_TASKS:
        return None
    return _graph_work(case, f"{tasks:,} tasks")


def _graph_work(case: Measurements, size: str) -> Symptom:
    # the bottleneck has the messages with parts of graphs besides, and lacks what a slow link explains
    seconds = max(case.path_s(BUILD, UPLOAD, PLAN), case.bottleneck(GRAPHS)[0])
    return Symptom(seconds, f"Graphs of {size} took {seconds:.1f} s {case.length} to build, send and prepare")


def _small_tasks(case: Measurements) -> Symptom | None:
    """Leave out what another rule has a remedy for."""
    is_of_collection = share_of(case, TASK_SHUFFLE) > 0.5 or share_of(case, OVERLAP) > 0.1
    return None if is_of_collection else small_tasks(case)


def small_tasks(case: Measurements) -> Symptom | None:
    """Compare what tasks do with what Dask does between them."""
    if len(case.task_s) < LEAST_SMALL or (median := float(np.median(case.task_s))) >= SMALL_TASK_S:
        return None
    seconds = case.path_s(LOGIC, LOOP, TIMER, MESSAGE, LAG)
    if any(not some.kind and some.code and some.seconds > seconds / 2 for some in case.activities):
        return None  # an event loop ran code that is not Dask's
    return Symptom(
        seconds,
        f"{len(case.task_s):,} tasks took {1e3 * median:.2g} ms each (median); what scheduler and workers do"
        f" between them took {seconds:.1f} s {case.length}",
    )


def _lock(case: Measurements) -> Symptom | None:
    use = next((use for use in case.facts.primitives if use.is_exclusive), None)
    if use is None:
        return None
    holder = f" that {use.holder} holds," if use.holder else ","
    return Symptom(
        case.thread_s(LOCK, HOLDING),
        f"Tasks kept their threads while they waited for the {use.kind} '{use.name}'{holder}"
        f" {use.waited_s:.1f} thread-seconds in all",
    )


def _event(case: Measurements) -> Symptom | None:
    """Look for threads that other tasks could have had while a task waited."""
    use = next(iter(case.facts.primitives), None)
    if use is None or use.is_exclusive:
        return None
    wanted_s = _wanted_s(case.repeat)
    return Symptom(
        min(case.thread_s(LOCK), wanted_s / case.threads),
        f"Tasks kept their threads while they waited for the {use.kind} '{use.name}', and others wanted"
        f" these threads for {min(wanted_s, use.waited_s):.1f} thread-seconds",
    )


def _wanted_s(repeat: Repeat) -> float:
    """Return for how many thread-seconds tasks waited while their worker had more tasks than threads.

    While the scheduler keeps tasks back, every worker could have had one more.
    """
    locks, seconds = repeat.evidence.locks, 0.0
    middle = (locks.start + locks.stop) / 2
    for node, load in repeat.load.items():
        own = repeat.tasks.worker[locks.member] == node
        threads = repeat.threads[repeat.places.nodes[node]]
        is_crowded = (load.at(middle) > threads) | (repeat.queued.at(middle) > 0)
        seconds += float((locks.stop - locks.start)[own & is_crowded].sum())
    return seconds


RULES = (
    AdviceRule(
        "large graphs", f"{GRAPH_BYTES / 1e6:.0f} MB",
        "Load data in tasks, or scatter it once, instead of sending it with the graph.",
        pages.LOAD_DATA, _large_graphs, (GRAPHS,),
    ),
    AdviceRule(
        "many tasks", f"{GRAPH_TASKS:,} tasks", "Use larger chunks or partitions.",
        pages.LARGE_GRAPHS, _many_tasks, (GRAPHS,),
    ),
    AdviceRule(
        "small tasks", f"{LEAST_SMALL} tasks of less than {1e3 * SMALL_TASK_S:.0f} ms",
        "Do more in each task: larger chunks, or batches of items.",
        pages.LARGER_TASKS, _small_tasks, (SCHEDULING, WORKER_LAG),
    ),
    AdviceRule(
        "locks", "", "Hold it for a shorter time, or do without it.",
        pages.PRIMITIVES, _lock, (LOCK, HOLDING),
    ),
    AdviceRule(
        "events, queues and variables", "",
        "Submit those tasks when what they wait for is there, or let them call secede() first.",
        pages.TASKS_FROM_TASKS, _event, (LOCK,),
    ),
)  # fmt: skip
