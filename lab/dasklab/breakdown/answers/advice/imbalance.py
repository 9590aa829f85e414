"""Rules about work that is not spread: long tasks while threads idle, skew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.kinds import is_of_collection, kind_of
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.bottlenecks.slow_workers import typical_seconds, unhindered_seconds
from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.causes import NOTHING, QUEUE
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import FIRST_WORKER, Repeat
from dasklab.breakdown.model.step_function import StepFunction
from dasklab.records.recorder.layout import KEY_SEPARATOR

LONG_S, LONG_SHARE = 0.5, 0.1  # of the repeat, with some threads idle
IDLE_SHARE = 1 / 3  # of the threads
FEW = 0.25  # of the tasks
SKEW = 2.0  # x the mean of the other workers


@dataclass(frozen=True)
class LongTasks:
    """Tasks that ran for long while a third of the threads or more had no task.

    Attributes:
        rows: of the tasks, the longest first.
        alone_s: for how long at least one of them ran while they had none.
        gain_s: what would be saved if their work of that time were spread over all threads.
    """

    rows: Codes
    alone_s: float
    gain_s: float


def long_tasks(case: Measurements) -> LongTasks | None:
    """Return the tasks that kept the cluster waiting; None if they are not few, or waited themselves."""
    repeat, threads = case.repeat, case.threads
    if not len(repeat.tasks) or threads < 2 or not case.has_all_workers:
        return None
    tasks, running = repeat.tasks, case.running
    is_quiet = (running.value > 0) & (running.value <= threads * (1 - IDLE_SHARE))
    starts, stops = running.time, np.append(running.time[1:], running.time[-1])
    quiet = IntervalSets(np.zeros(int(is_quiet.sum()), np.int64), starts[is_quiet], stops[is_quiet])
    alone_s = quiet.within(np.zeros(len(tasks), np.int64), tasks.start, tasks.stop)
    rows = np.flatnonzero(alone_s >= max(LONG_S, LONG_SHARE * repeat.makespan))
    rows = rows[(unhindered_seconds(repeat)[rows] > case.task_s[rows] / 2) & ~case.has_failed[rows]]
    if not len(rows) or len(rows) > max(2, threads // 2):
        return None
    if len(rows) > 1 and len(rows) > FEW * len(tasks):
        return None
    long = StepFunction.from_increments(
        np.concatenate([tasks.start[rows], tasks.stop[rows]]), np.repeat([1, -1], len(rows))
    )
    seconds = np.where(is_quiet & (long.at(starts) > 0), stops - starts, 0.0)
    gain_s = float((seconds * (1 - running.value / threads)).sum())
    if case.thread_s(NOTHING) < gain_s / 2:  # the other threads waited for something else
        return None
    return LongTasks(rows[np.argsort(-alone_s[rows])], float(seconds.sum()), gain_s)


def describe(case: Measurements, long: LongTasks) -> Symptom:
    """Name the long tasks, where the longest ran, and for how long the other threads had nothing to do."""
    rows = long.rows
    longest = int(rows[case.task_s[rows].argmax()])
    took, worker = case.task_s[longest], case.repeat.places.nodes[case.repeat.tasks.worker[longest]]
    which = f"{kind_of(case, longest)} on {worker}; its median is {_median_s(case, longest):.2g} s"
    tasks = (
        f"One task, {kind_of(case, longest)}, took {took:.1f} s on {worker}"
        if len(rows) == 1
        else f"{len(rows)} of {len(case.repeat.tasks):,} tasks took up to {took:.1f} s ({which})"
    )
    idle = f"for {long.alone_s:.1f} s {case.length} a third of the threads or more had nothing to do"
    return Symptom(long.gain_s, f"{tasks}, and {idle}", rows)


def _median_s(case: Measurements, row: int) -> float:
    """Return the median length of the tasks of the same kind as one."""
    prefix = case.repeat.prefix
    return float(np.median(case.task_s[prefix == prefix[row]]))


def _one_long_task(case: Measurements) -> Symptom | None:
    long = long_tasks(case)
    if long is None or len(long.rows) > 1 or is_of_collection(kind_of(case, int(long.rows[0]))):
        return None
    return describe(case, long)


def _few_long_tasks(case: Measurements) -> Symptom | None:
    long = long_tasks(case)
    if long is None or len(long.rows) < 2 or is_of_collection(kind_of(case, int(long.rows[0]))):
        return None
    return describe(case, long)


def _skew_of_data(case: Measurements) -> Symptom | None:
    crowded = _crowded_worker(case)
    if crowded is None or not _holds_data(case.repeat, crowded[0]):
        return None
    return Symptom(crowded[1], _skew(case, *crowded) + ", because they need data that it holds")


def _restricted(case: Measurements) -> Symptom | None:
    crowded = _crowded_worker(case)
    if crowded is None or _holds_data(case.repeat, crowded[0]):
        return None
    return Symptom(crowded[1], _skew(case, *crowded) + ", although they need no data that it holds")


def _crowded_worker(case: Measurements) -> tuple[str, float] | None:
    """Return a worker on which tasks queued while threads of others had none, and their idle seconds."""
    repeat = case.repeat
    if len(repeat.threads) < 2 or not len(repeat.tasks) or not case.has_all_workers or _was_full(case):
        return None
    work_s = _work_s(case)
    node = int(work_s.argmax())
    others_s = (work_s.sum() - work_s[node]) / (len(work_s) - 1)
    name = list(repeat.threads)[node]
    idle_s = case.summary.breakdown.get((QUEUE, name), 0.0)
    return (name, idle_s) if work_s[node] >= SKEW * others_s and idle_s else None


def _was_full(case: Measurements) -> bool:
    """Return whether a worker may have been paused because its memory was nearly full."""
    pause = case.facts.memory_thresholds.get("pause", 1.0)
    is_full = any(bool((worker.process > pause * worker.limit).any()) for worker in case.facts.memory)
    return is_full or len(case.repeat.evidence.paused.start) > 0


def _work_s(case: Measurements) -> Floats:
    """Return how long each worker's tasks take, where a slow worker counts as one that is not."""
    tasks = case.repeat.tasks
    work_s = np.bincount(tasks.worker, typical_seconds(case.repeat, case.task_s), case.repeat.workers.stop)
    return np.asarray(work_s[FIRST_WORKER:], np.float64)


def _holds_data(repeat: Repeat, worker: str) -> bool:
    """Return whether most tasks of a worker need data that it had when they arrived."""
    own = np.flatnonzero(repeat.tasks.worker[repeat.needs.task] == repeat.node(worker))
    rows = [row for row in own.tolist() if worker in repeat.needs.holders[row].split(KEY_SEPARATOR)]
    with_data = len(np.unique(repeat.needs.task[rows]))
    return bool(with_data > np.count_nonzero(repeat.tasks.worker == repeat.node(worker)) / 2)


def _skew(case: Measurements, worker: str, idle_s: float) -> str:
    work_s = _work_s(case)
    share = work_s[list(case.repeat.threads).index(worker)] / work_s.sum()
    return (
        f"{worker} did {100 * share:.0f} % of the work of {len(work_s)} workers: tasks queued there while"
        f" threads of the others had none ({idle_s * case.threads:.1f} thread-seconds)"
    )


RULES = (
    AdviceRule(
        "one long task", f"{LONG_S} s with a third of the threads idle", "Split it into several.",
        pages.NONE, _one_long_task,
    ),
    AdviceRule(
        "few long tasks", f"{LONG_S} s with a third of the threads idle",
        "Split them, or start them before the others (priority=).", pages.PRIORITIES, _few_long_tasks,
    ),
    AdviceRule(
        "skew of data", f"x {SKEW:.0f} the mean of the others",
        "Spread the data evenly: more and equal partitions, or client.rebalance().",
        pages.LOCALITY, _skew_of_data, (QUEUE,),
    ),
    AdviceRule(
        "restricted tasks", f"x {SKEW:.0f} the mean of the others",
        "If they need not run there, let Dask choose: no workers= and no resources=, and work stealing on.",
        pages.RESTRICTIONS, _restricted, (QUEUE,),
    ),
)  # fmt: skip
