"""Random runs, as they might be recorded: consistent ones, and ones whose stamps make no sense."""

from __future__ import annotations

import random

from dasklab.breakdown.busy import Spells
from dasklab.breakdown.run import Fetch, Need, Run, Task

WORKERS = ("worker-1", "worker-2", "worker-3")
STAGES = ("executing", "ready", "arrived", "sent", "decided", "done", "reported", "handled")


def random_run(seed: int, sense: bool) -> Run:
    """A run; without ``sense`` its stamps lie anywhere or are missing, and computations may overlap."""
    chance = random.Random(seed)
    start = chance.uniform(0, 1e9)
    stop = start + chance.uniform(0.1, 12)
    threads = {name: chance.randint(1, 3) for name in WORKERS[: chance.randint(1, 3)]}
    tasks: list[Task] = []
    for worker, count in threads.items():
        for thread in range(count if chance.random() < 0.9 else 0):
            now = start + chance.uniform(-1, 1)
            while now < stop and len(tasks) < 60:
                now += chance.expovariate(4)
                length = chance.expovariate(4)
                where = (worker, thread, now, length, (start, stop))
                tasks.append(_task(chance, len(tasks), *where, sense, tasks))
                now += length if sense else chance.uniform(0, length)
    run = Run(0, start, stop, threads, tasks, _fetches(chance, tasks, list(threads), (start, stop)))
    run.busy = {name: Spells(_spells(chance, start, stop)) for name in (*threads, "scheduler")}
    run.unfinished = sorted((chance.uniform(start, stop), chance.randint(0, 2)) for _ in range(9))
    run.queued = sorted((chance.uniform(start, stop), chance.randint(0, 2)) for _ in range(9))
    return run


def _task(chance, number, worker, thread, now, length, ends, sense, before) -> Task:  # type: ignore[no-untyped-def]
    task = Task(f"inc-{number}", worker, thread, now, now + length, disk=chance.choice([0, 0, 0.05]))
    back = now
    for stage in STAGES[:5]:
        back -= chance.expovariate(20)
        setattr(task, stage, back if sense else chance.choice([None, chance.uniform(*ends)]))
    on = task.stop
    for stage in STAGES[5:]:
        on += chance.expovariate(20)
        setattr(task, stage, on if sense else chance.choice([None, chance.uniform(*ends)]))
    if before:
        task.trigger = chance.choice([*before, task]).key
        task.needs = tuple(
            Need(other.key, 8.0, (other.worker,)) for other in chance.sample(before, min(3, len(before)))
        )
    return task


def _fetches(chance, tasks, workers, ends) -> list[Fetch]:  # type: ignore[no-untyped-def]
    found = []
    for _ in range(len(tasks) // 2):
        begin = chance.uniform(*ends)
        receiver, sender = chance.choices(workers, k=2)
        fetch = Fetch(receiver, sender, begin, begin + chance.expovariate(5), ())
        fetch.keys = tuple(task.key for task in chance.sample(tasks, min(3, len(tasks))))
        fetch.busy = chance.random() < 0.2
        fetch.serialise, fetch.deserialise = chance.random(), chance.random()
        fetch.serve_start = chance.choice([None, chance.uniform(*ends)])
        found.append(fetch)
    return found


def _spells(chance, start, stop) -> list[tuple[float, float]]:  # type: ignore[no-untyped-def]
    begins = [chance.uniform(start, stop) for _ in range(15)]
    return [(begin, begin + chance.expovariate(10)) for begin in begins]
