"""Runs for tests: built from rows by hand, or at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from dasklab.breakdown.model.evidence import IdleShares
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.model.step_function import StepFunction
from dasklab.breakdown.prepare.columns import build_repeat
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.schema import TABLES

Row = dict[str, Any]
Spans = Sequence[tuple[float, float]]
WORKERS = ("worker-1", "worker-2", "worker-3")
BEFORE = (
    "executing",
    "ready",
    "arrived",
    "sent",
    "decided",
)  # stamps before a task's start, the latest first
AFTER = ("done", "reported", "handled")


def task(key: str, worker: str, thread: int, start: float, stop: float, **more: Any) -> Row:
    """A row of the table `tasks`; stamps by name, and ``needs`` as (key, bytes, holders)."""
    stamps = {
        f"{name}_s" if name not in ("trigger", "needs") else name: value for name, value in more.items()
    }
    return {"key": key, "worker": worker, "thread": thread, "start_s": start, "stop_s": stop, **stamps}


def fetch(receiver: str, sender: str, start: float, stop: float, keys: Sequence[str], **more: Any) -> Row:
    """A row of the table `fetches`."""
    row = {
        "receiver": receiver,
        "sender": sender,
        "start_s": start,
        "stop_s": stop,
        "keys": KEY_SEPARATOR.join(keys),
    }
    return row | {"status": "OK"} | more


def make_repeat(
    tasks: Sequence[Row] = (),
    fetches: Sequence[Row] = (),
    *,
    number: int = 0,
    start: float = 0.0,
    stop: float = 10.0,
    threads: Mapping[str, int] = {"worker-1": 1, "worker-2": 1},
    busy: Mapping[str, Spans] = {},
    unfinished: Sequence[tuple[float, int]] = (),
    queued: Sequence[tuple[float, int]] = (),
    graphs: Sequence[Row] = (),
    tables: Mapping[str, Sequence[Row]] = {},
) -> Repeat:
    """Build a repeat.

    Args:
        unfinished, queued: numbers of tasks from some times on.
        tables: rows of other tables.
    """
    needs = [
        {
            "key": row["key"],
            "worker": row["worker"],
            "needed": key,
            "nbytes": size,
            "holders": KEY_SEPARATOR.join(holders),
        }
        for row in tasks
        for key, size, holders in row.get("needs", ())
    ]
    rows: dict[str, list[Row]] = {name: [] for name in TABLES} | {
        "repeats": [{"repeat": number, "warmup": False, "start_s": start, "stop_s": stop}],
        "workers": [{"worker": name, "threads": count} for name, count in threads.items()],
        "tasks": [{name: value for name, value in row.items() if name != "needs"} for row in tasks],
        "needs": needs,
        "fetches": list(fetches),
        "busy": [{"node": n, "start_s": a, "stop_s": b} for n, spans in busy.items() for a, b in spans],
        "graphs": list(graphs),
    }
    rows |= {name: list(some) for name, some in tables.items()}
    repeat = build_repeat(
        {name: pd.DataFrame(each, columns=list(TABLES[name])) for name, each in rows.items()}
    )
    return replace(repeat, unfinished=_steps(unfinished), queued=_steps(queued))


def idle_for(repeat: Repeat, share: float) -> IdleShares:
    """Return that all tasks used no CPU for a share of their time, because of something outside."""
    nothing = np.zeros(len(repeat.tasks))
    return IdleShares(nothing + share, nothing, nothing, nothing, nothing)


def _steps(pairs: Sequence[tuple[float, int]]) -> StepFunction:
    return StepFunction(np.array([t for t, _ in pairs], float), np.array([n for _, n in pairs], np.int64))


def by_hand(
    first: Row | None = None,
    second: Row | None = None,
    more: Sequence[Row] = (),
    busy: Mapping[str, Spans] = {},
) -> Repeat:
    """One thread each on two workers: ``b`` on worker-2 needs ``a`` of worker-1, which ends at 3.

    Args:
        first, second: what is different of ``a`` and ``b``.
        more: other tasks.
    """
    a = task("a", "worker-1", 1, 1.0, 3.0, executing=0.9, ready=0.8, arrived=0.7, sent=0.6, decided=0.5,
             done=3.1, report_due=3.3, reported=3.3, handled=3.6)  # fmt: skip
    b = task("b", "worker-2", 2, 8.0, 9.0, executing=7.9, ready=7.5, arrived=4.5, sent=4.2, decided=3.7,
             due=4.2, done=9.1, reported=9.2, handled=9.4, trigger="a",
             needs=(("a", 8.0, ("worker-1",)),))  # fmt: skip
    brought = fetch(
        "worker-2", "worker-1", 4.6, 7.4, ("a",), serve_start_s=5.0, serialise_s=0.2, deserialise_s=0.4
    )
    tasks = [a | (first or {}), b | (second or {}), *more]
    call = {"kind": "sync", "start_s": 0.4, "stop_s": 10.0}
    unfinished = [(0.4, 2), (3.6, 1), (9.4, 0)]
    return make_repeat(tasks, [brought], busy=busy, unfinished=unfinished, tables={"calls": [call]})


def random_repeat(seed: int, sense: bool) -> Repeat:
    """A repeat; without ``sense`` its stamps lie anywhere or are missing, and computations may overlap."""
    chance = random.Random(seed)
    start = chance.uniform(0, 1e9)
    stop = start + chance.uniform(0.1, 12)
    threads = {name: chance.randint(1, 3) for name in WORKERS[: chance.randint(1, 3)]}
    tasks: list[Row] = []
    for worker, count in threads.items():
        for thread in range(count if chance.random() < 0.9 else 0):
            now = start + chance.uniform(-1, 1)
            while now < stop and len(tasks) < 60:
                now += chance.expovariate(4)
                length = chance.expovariate(4)
                row = task(f"inc-{len(tasks)}", worker, thread, now, now + length)
                tasks.append(row | _stamps(chance, row, (start, stop), sense) | _relatives(chance, tasks))
                now += length if sense else chance.uniform(0, length)
    numbers = [
        sorted((chance.uniform(start, stop), chance.randint(0, 2)) for _ in range(9)) for _ in range(2)
    ]
    return make_repeat(
        tasks,
        _fetches(chance, tasks, list(threads), (start, stop)),
        start=start,
        stop=stop,
        threads=threads,
        busy={name: _spans(chance, start, stop) for name in (*threads, "scheduler")},
        unfinished=numbers[0],
        queued=numbers[1],
    )


def _stamps(chance: random.Random, row: Row, ends: tuple[float, float], sense: bool) -> Row:
    stamps: Row = {"disk_s": chance.choice([0, 0, 0.05])}
    back, on = row["start_s"], row["stop_s"]
    for name in BEFORE:
        back -= chance.expovariate(20)
        stamps[f"{name}_s"] = back if sense else chance.choice([None, chance.uniform(*ends)])
    for name in AFTER:
        on += chance.expovariate(20)
        stamps[f"{name}_s"] = on if sense else chance.choice([None, chance.uniform(*ends)])
    return stamps


def _relatives(chance: random.Random, before: Sequence[Row]) -> Row:
    if not before:
        return {}
    some = chance.sample(before, min(3, len(before)))
    needs = [(other["key"], 8.0, (other["worker"],)) for other in some]
    return {"trigger": chance.choice(before)["key"], "needs": needs}


def _fetches(
    chance: random.Random, tasks: Sequence[Row], workers: Sequence[str], ends: tuple[float, float]
) -> list[Row]:
    rows = []
    for _ in range(len(tasks) // 2):
        begin = chance.uniform(*ends)
        receiver, sender = chance.choices(workers, k=2)
        keys = [row["key"] for row in chance.sample(tasks, min(3, len(tasks)))]
        row = fetch(receiver, sender, begin, begin + chance.expovariate(5), keys)
        row["status"] = "busy" if chance.random() < 0.2 else "OK"
        row["serialise_s"], row["deserialise_s"] = chance.random(), chance.random()
        row["serve_start_s"] = chance.choice([None, chance.uniform(*ends)])
        rows.append(row)
    return rows


def _spans(chance: random.Random, start: float, stop: float) -> Spans:
    begins = [chance.uniform(start, stop) for _ in range(15)]
    return [(begin, begin + chance.expovariate(10)) for begin in begins]
