"""A task's way in stages: what each took for most tasks. Only what is on the wire moves with a link. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dasklab.breakdown.run import Run, Task

STAGES = (  # in words, from, to, whether a link is in it
    ("scheduler: worker chosen until its batch leaves", "decided", "sent", False),
    ("on the wire to the worker, until its event loop has it", "sent", "arrived", True),
    ("worker: waits for data", "arrived", "ready", True),
    ("worker: ready, no thread is free or its event loop is busy", "ready", "executing", False),
    ("worker: event loop to thread", "executing", "start", False),
    ("computing", "start", "stop", False),
    ("worker: thread to event loop", "stop", "done", False),
    ("worker: until its batch leaves", "done", "reported", False),
    ("on the wire to the scheduler, until it has dealt with it", "reported", "handled", True),
    ("together", "decided", "handled", True),
)


def stages(runs: Sequence[Run]) -> Iterator[tuple[str, float, float, float, bool]]:
    """Each stage in words; median, 10th and 90th percentile in ms; and whether a link is in it."""
    tasks = [task for run in runs for task in run.tasks]
    for words, first, last, link in STAGES:
        if found := list(_lengths(tasks, first, last)):
            low, middle, high = 1e3 * np.quantile(found, (0.1, 0.5, 0.9))
            yield words, float(middle), float(low), float(high), link


def _lengths(tasks: Sequence[Task], first: str, last: str) -> Iterator[float]:
    for task in tasks:
        begin, end = getattr(task, first), getattr(task, last)
        if begin is not None and end is not None:
            yield end - begin
