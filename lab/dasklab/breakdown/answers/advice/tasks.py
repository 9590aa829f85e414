"""Rules about graphs and tasks: their number and size, and what they wait for while they keep a thread."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice.rules import DASK, DISTRIBUTED, AdviceRule, Measurements, Symptom
from dasklab.breakdown.model.causes import (
    BUILD,
    HOLDING,
    LAG,
    LOCK,
    LOGIC,
    LOOP,
    MESSAGE,
    NOTHING,
    PLAN,
    QUEUE,
    TIMER,
    UPLOAD,
)
from dasklab.breakdown.model.repeat import FIRST_WORKER

GRAPH_BYTES = 10_000_000  # Dask warns of larger ones, too
GRAPH_TASKS = 10_000
SMALL_TASK_S, LEAST_SMALL = 0.01, 100
LONG_SHARE, IDLE_SHARE = 0.3, 0.5
SKEW = 1.5  # x the mean of all workers


def _large_graphs(case: Measurements) -> Symptom | None:
    nbytes = sum(graph.nbytes for graph in case.repeat.graphs)
    if nbytes < GRAPH_BYTES:
        return None
    return _graph_work(case, f"{nbytes / 1e6:.0f} MB")


def _many_tasks(case: Measurements) -> Symptom | None:
    tasks = sum(graph.tasks for graph in case.repeat.graphs)
    if tasks < GRAPH_TASKS:
        return None
    return _graph_work(case, f"{tasks:,} tasks")


def _graph_work(case: Measurements, size: str) -> Symptom:
    seconds = case.path_s(BUILD, UPLOAD, PLAN)
    return Symptom(seconds, f"Graphs of {size} took {seconds:.1f} s {case.length} to build, send and prepare")


def _small_tasks(case: Measurements) -> Symptom | None:
    if len(case.task_s) < LEAST_SMALL or (median := float(np.median(case.task_s))) >= SMALL_TASK_S:
        return None
    seconds = case.path_s(LOGIC, LOOP, TIMER, MESSAGE, LAG)
    return Symptom(
        seconds,
        f"{len(case.task_s):,} tasks took {1e3 * median:.2g} ms each (median); Dask's own work between them"
        f" took {seconds:.1f} s {case.length}",
    )


def _long_task(case: Measurements) -> Symptom | None:
    repeat, threads = case.repeat, sum(case.repeat.threads.values())
    if not len(repeat.tasks) or threads < 2:
        return None
    row = int(case.task_s.argmax())
    longest = float(case.task_s[row])
    idle = case.thread_s(NOTHING, QUEUE) * threads
    if longest < LONG_SHARE * repeat.makespan or idle < IDLE_SHARE * longest * (threads - 1):
        return None
    kind, worker = repeat.prefixes[repeat.tasks.key[row]], repeat.places.nodes[repeat.tasks.worker[row]]
    return Symptom(
        longest, f"One task, {kind}, took {longest:.1f} s {case.length} on {worker} while most threads idled"
    )


def _skew(case: Measurements) -> Symptom | None:
    repeat = case.repeat
    if len(repeat.threads) < 2 or not len(repeat.tasks) or _long_task(case):
        return None
    work = np.bincount(repeat.tasks.worker, case.task_s, repeat.workers.stop)[FIRST_WORKER:]
    most = int(work.argmax())
    if work[most] < SKEW * work.mean():
        return None
    seconds = case.thread_s(NOTHING, QUEUE)
    return Symptom(
        seconds,
        f"{list(repeat.threads)[most]} did {100 * work[most] / work.sum():.0f} % of the work of"
        f" {len(repeat.threads)} workers; the others' idle threads cost {seconds:.1f} s {case.length}",
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
    use = next(iter(case.facts.primitives), None)
    if use is None or use.is_exclusive:
        return None
    return Symptom(
        case.thread_s(LOCK),
        f"Tasks kept their threads while they waited for the {use.kind} '{use.name}',"
        f" {use.waited_s:.1f} thread-seconds in all",
    )


RULES = (
    AdviceRule(
        "large graphs", f"{GRAPH_BYTES / 1e6:.0f} MB",
        "Load data in tasks, or scatter it once, instead of passing it as an argument.",
        f"{DASK}/best-practices.html#load-data-with-dask", _large_graphs,
    ),
    AdviceRule(
        "many tasks", f"{GRAPH_TASKS:,} tasks", "Use larger chunks or partitions.",
        f"{DASK}/best-practices.html#avoid-very-large-graphs", _many_tasks,
    ),
    AdviceRule(
        "small tasks", f"{LEAST_SMALL} tasks of less than {1e3 * SMALL_TASK_S:.0f} ms",
        "Do more in each task: larger chunks, or batches of items.",
        f"{DISTRIBUTED}/efficiency.html#use-larger-tasks", _small_tasks,
    ),
    AdviceRule(
        "one long task", f"{100 * LONG_SHARE:.0f} % of the time, with half of the other threads idle",
        "Split it into several.", f"{DISTRIBUTED}/efficiency.html", _long_task,
    ),
    AdviceRule(
        "skew", f"x {SKEW} the mean", "Spread the data evenly, and do not restrict tasks to workers.",
        f"{DISTRIBUTED}/locality.html", _skew,
    ),
    AdviceRule(
        "locks", "", "Hold it for a shorter time, or do without it.",
        f"{DASK}/futures.html#coordination-primitives", _lock,
    ),
    AdviceRule(
        "events, queues and variables", "",
        "Submit those tasks when what they wait for is there, or let them call secede() first.",
        f"{DISTRIBUTED}/task-launch.html", _event,
    ),
)  # fmt: skip
