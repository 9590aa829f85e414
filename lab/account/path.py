"""The critical path of a run: backwards from its end, what the end waited for, and what that waited for. Pure."""

from __future__ import annotations

from lab.account.causes import CLIENT, COMPUTE, Part
from lab.account.partition import World
from lab.account.run import Run, Task
from lab.account.ways import Way, clipped, report, way


def critical_path(run: Run) -> list[Part]:
    """Parts in order, without gaps, from the run's start to its end."""
    done = Way(run.stop)
    task: Task | None = max(run.tasks, key=lambda t: t.handled or t.stop, default=None)
    if task is not None:
        done.back(max(run.start, task.handled or task.stop), _client)
        report(run, task, done)
    seen: set[str] = set()
    while task is not None and done.begin > run.start and task.key not in seen:
        seen.add(task.key)
        worker, key = task.worker, task.key
        done.back(task.start, lambda a, b, w=worker, k=key: iter([Part(a, b, COMPUTE, w, k)]))
        parts, begin, trigger = way(run, task)
        done.back(begin, lambda a, b, p=parts: clipped(p, a, b))
        if trigger is not None:
            done.back(trigger.stop, _client)  # nothing is left between, but what stamps miss
        task = trigger
    world = World(run)
    done.back(run.start, lambda a, b: world.idle("", a, b))
    return [part for part in clipped(done.parts, run.start, run.stop) if part.seconds > 0]


def _client(start: float, stop: float):  # type: ignore[no-untyped-def]
    yield Part(start, stop, CLIENT, "client")
