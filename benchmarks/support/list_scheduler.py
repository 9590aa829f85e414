"""Predict a recorded block by a list scheduler without a network, as Sparklens does for Spark.

Each job is scheduled on its own: a job lasts as long as the scheduler had unfinished tasks. Its tasks keep
their recorded durations, begin when the tasks that they need have ended and a thread is free, and move no
data. All other time of the block is the client's and stays as it was.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial


def recorded_repeat(folder: Path) -> Repeat:
    """Return what happened in a recorded block."""
    return explain(open_trial(folder)).repeats[0]


def predict_s(repeat: Repeat, threads: int) -> float:
    """Return how long the block takes on so many threads."""
    starts, stops = _jobs(repeat)
    if not len(starts):
        return repeat.makespan
    tasks = repeat.tasks
    job = np.maximum(0, np.searchsorted(starts, tasks.start, side="right") - 1)
    last_row = {int(key): row for row, key in enumerate(tasks.key)}
    needs: defaultdict[int, list[int]] = defaultdict(list)
    for row, key in zip(repeat.needs.task, repeat.needs.key, strict=True):
        if int(key) in last_row:
            needs[int(row)].append(last_row[int(key)])
    working_s = 0.0
    for number in range(len(starts)):
        rows = {int(row): place for place, row in enumerate(np.flatnonzero(job == number))}
        working_s += schedule_s(
            [float(tasks.stop[row] - tasks.start[row]) for row in rows],
            [[rows[need] for need in needs[row] if need in rows and need < row] for row in rows],
            threads,
        )
    return repeat.makespan - float((stops - starts).sum()) + working_s


def schedule_s(durations_s: Sequence[float], needs: Sequence[Sequence[int]], threads: int) -> float:
    """Return when the last task ends. Tasks are in order of priority; each needs only earlier ones."""
    missing = [len(set(own)) for own in needs]
    dependents: defaultdict[int, list[int]] = defaultdict(list)
    for task, own in enumerate(needs):
        for need in set(own):
            dependents[need].append(task)
    ready = [task for task, number in enumerate(missing) if not number]  # sorted, so a heap
    running: list[tuple[float, int]] = []
    now_s = 0.0
    while ready or running:
        while ready and len(running) < threads:
            task = heapq.heappop(ready)
            heapq.heappush(running, (now_s + durations_s[task], task))
        now_s, first = heapq.heappop(running)
        for task in dependents[first]:
            missing[task] -= 1
            if not missing[task]:
                heapq.heappush(ready, task)
    return now_s


def _jobs(repeat: Repeat) -> tuple[np.ndarray, np.ndarray]:
    """Return when jobs start and stop."""
    steps = repeat.unfinished
    time = np.clip(steps.time, repeat.start, repeat.stop)
    working = (steps.value > 0).astype(int)
    change = np.diff(working, prepend=0, append=0)
    ends = np.append(time, repeat.stop)
    return ends[change > 0], ends[change < 0]
