"""The critical path: backwards from a run's end, what that waited for, and what that waited for. Pure."""

from __future__ import annotations

from functools import partial

from dasklab.breakdown.causes import CLIENT, COMPUTE, Part
from dasklab.breakdown.partition import World
from dasklab.breakdown.run import Run, Task
from dasklab.breakdown.timeline import Way, clipped, report, way, whole


def critical_path(run: Run) -> list[Part]:
    """Parts in order, without gaps, from the run's start to its end."""
    done = Way(run.stop)
    task: Task | None = max(run.tasks, key=lambda t: t.handled or t.stop, default=None)
    if task is not None:
        done.back(max(run.start, task.handled or task.stop), whole(CLIENT, "client", ""))
        report(run, task, done)
    seen: set[str] = set()
    while task is not None and done.begin > run.start and task.key not in seen:
        seen.add(task.key)
        done.back(task.start, whole(COMPUTE, task.worker, task.key))
        parts, begin, trigger = way(run, task)
        busy = run.before_on_thread.get(task.key)
        if busy and task.ready is not None and busy.stop > task.ready:  # all was there but the thread
            begin, trigger = busy.stop, busy
        done.back(begin, partial(clipped, parts))
        task = trigger
    done.back(run.start, partial(World(run).idle, ""))
    return [part for part in clipped(done.parts, run.start, run.stop) if part.seconds > 0]
