"""One run as the account needs it: tasks, fetches and busy spells, all on one clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from lab.account.clocks import Clock, at_least, at_most, estimate
from lab.account.spells import Spells

Frames = Mapping[str, pd.DataFrame]
Delays = Mapping[tuple[str, str], float]  # known least delay from one host to another, seconds
SCHEDULER, CLIENT = "scheduler", "client"
STAGES = ("decided", "due", "sent", "arrived", "ready", "executing", "done", "report_due", "reported", "handled")
THEIRS = ("arrived", "ready", "executing", "start", "stop", "done", "report_due", "reported")  # worker's clock


@dataclass(slots=True)
class Task:
    """A computed task; stages that were not seen are those before or after them."""

    key: str
    worker: str
    thread: int
    start: float
    stop: float
    executing: float | None = None
    ready: float | None = None
    arrived: float | None = None
    sent: float | None = None
    due: float | None = None
    decided: float | None = None
    done: float | None = None
    report_due: float | None = None
    reported: float | None = None
    handled: float | None = None
    trigger: str = ""
    stimulus: str = ""
    disk: float = 0.0
    needs: tuple[Need, ...] = ()

    @property
    def prefix(self) -> str:
        """What is done, without which one: Dask's key without its number or token."""
        from dask.utils import key_split

        return str(key_split(self.key))


@dataclass(frozen=True, slots=True)
class Need:
    """What a task needs of another: its size, and who had it when the task was sent."""

    key: str
    nbytes: float
    holders: tuple[str, ...]


@dataclass(slots=True)
class Fetch:
    """A request for data and its answer."""

    receiver: str
    sender: str
    start: float
    stop: float
    keys: tuple[str, ...]
    busy: bool = False
    serve_start: float | None = None
    serialise: float = 0.0
    deserialise: float = 0.0


@dataclass
class Run:
    """A run on one clock. ``unfinished`` and ``queued``: how many tasks the scheduler had, from when on."""

    number: int
    start: float
    stop: float
    threads: dict[str, int]
    tasks: list[Task]
    fetches: list[Fetch] = field(default_factory=list)
    busy: dict[str, Spells] = field(default_factory=dict)
    unfinished: list[tuple[float, int]] = field(default_factory=list)
    queued: list[tuple[float, int]] = field(default_factory=list)
    warmup: bool = False

    @property
    def makespan(self) -> float:
        """Its length."""
        return self.stop - self.start

    @cached_property
    def by_key(self) -> dict[str, Task]:
        """Tasks by key; of one that was computed twice the last."""
        return {task.key: task for task in self.tasks}

    @cached_property
    def by_thread(self) -> dict[tuple[str, int], list[Task]]:
        """The tasks of each thread in their order; threads that did nothing have numbers below zero."""
        found: dict[tuple[str, int], list[Task]] = {}
        for task in sorted(self.tasks, key=lambda task: task.start):
            found.setdefault((task.worker, task.thread), []).append(task)
        for worker, threads in self.threads.items():
            used = sum(name == worker for name, _ in found)
            found.update({(worker, -index - 1): [] for index in range(threads - used)})
        return dict(sorted(found.items()))

    @cached_property
    def fetches_of(self) -> dict[str, list[Fetch]]:
        """The fetches of each receiver."""
        found = defaultdict(list)
        for fetch in self.fetches:
            found[fetch.receiver].append(fetch)
        return found

    @cached_property
    def fetches_by_key(self) -> dict[tuple[str, str], list[Fetch]]:
        """A receiver's fetches that brought a key."""
        found = defaultdict(list)
        for fetch in self.fetches:
            for key in fetch.keys:
                found[fetch.receiver, key].append(fetch)
        return found


def clocks(frames: Frames, delays: Delays | None = None) -> dict[str, Clock]:
    """Each process's clock against the scheduler's, from all runs of the trial."""
    known, tasks, runs = delays or {}, frames["tasks"], frames["runs"]
    found = {SCHEDULER: Clock(low_s=0.0, high_s=0.0)}
    found[CLIENT] = estimate(
        at_most(runs.now_s, runs.answered_s, known.get((SCHEDULER, CLIENT), 0.0)),
        at_least(runs.asked_s, runs.now_s, known.get((CLIENT, SCHEDULER), 0.0)),
    )
    for worker, theirs in tasks.groupby("worker"):
        there, back = theirs[["sent_s", "arrived_s"]].dropna(), theirs[["reported_s", "handled_s"]].dropna()
        found[str(worker)] = estimate(
            at_most(there.sent_s, there.arrived_s, known.get((SCHEDULER, str(worker)), 0.0)),
            at_least(back.reported_s, back.handled_s, known.get((str(worker), SCHEDULER), 0.0)),
        )
    return found


def runs(frames: Frames, found: Mapping[str, Clock]) -> list[Run]:
    """All runs of a trial on the scheduler's clock."""
    aligned = _aligned(frames, found)
    parts = {name: dict(list(frame.groupby("run"))) for name, frame in aligned.items() if "run" in frame}
    empty = {name: frame.iloc[:0] for name, frame in aligned.items()}
    numbers = aligned["runs"].run
    return [_run({n: parts[n].get(number, empty[n]) for n in parts}, number) for number in numbers]


def _aligned(frames: Frames, found: Mapping[str, Clock]) -> dict[str, pd.DataFrame]:
    """The same tables with all times on the scheduler's clock."""
    own = {name: frame.copy() for name, frame in frames.items()}
    for column in ("start_s", "stop_s"):
        own["runs"][column] = _moved(own["runs"], column, found.get(CLIENT, Clock()))
    for table, by, columns in (
        ("tasks", "worker", tuple(f"{stage}_s" for stage in THEIRS)),
        ("fetches", "receiver", ("start_s", "stop_s")),
        ("fetches", "sender", ("serve_start_s", "serve_stop_s")),
        ("spells", "node", ("start_s", "stop_s")),
    ):
        frame = own[table]
        for node in frame[by].unique():
            rows = frame[by] == node
            for column in columns:
                frame.loc[rows, column] = _moved(frame[rows], column, found.get(str(node), Clock()))
    return own


def _moved(frame: pd.DataFrame, column: str, clock: Clock) -> Any:
    return clock.to_reference(frame[column].to_numpy(float))


def _run(parts: Mapping[str, pd.DataFrame], number: int) -> Run:
    about = parts["runs"].iloc[0]
    start, stop = float(about.start_s), float(about.stop_s)
    needs = defaultdict(list)
    for row in parts["needs"].itertuples():
        size = 0.0 if row.nbytes is None or math.isnan(row.nbytes) else float(row.nbytes)
        needs[row.key, row.worker].append(Need(row.needed, size, tuple(row.holders)))
    tasks = [_task(row, tuple(needs.get((row.key, row.worker), ()))) for row in _during(parts, start, stop)]
    unfinished, queued = _counts(parts["transitions"])
    return Run(
        number=int(number),
        start=start,
        stop=stop,
        threads={str(row.worker): int(row.threads) for row in parts["workers"].itertuples()},
        tasks=tasks,
        fetches=[_fetch(row) for row in parts["fetches"].itertuples()],
        busy={
            str(node): Spells(zip(some.start_s, some.stop_s, strict=True))
            for node, some in parts["spells"].groupby("node")
        },
        unfinished=unfinished,
        queued=queued,
        warmup=bool(about.warmup),
    )


def _during(parts: Mapping[str, pd.DataFrame], start: float, stop: float) -> Iterator[Any]:
    tasks = parts["tasks"]
    yield from tasks[(tasks.start_s < stop) & (tasks.stop_s > start)].itertuples()


def _task(row: Any, needs: tuple[Need, ...]) -> Task:
    stages = {name: _time(getattr(row, f"{name}_s")) for name in STAGES}
    where = (str(row.key), str(row.worker), int(row.thread))
    return Task(*where, float(row.start_s), float(row.stop_s), **stages, trigger=row.trigger,
                stimulus=row.stimulus, disk=float(row.disk_s), needs=needs)  # fmt: skip


def _fetch(row: Any) -> Fetch:
    return Fetch(
        receiver=row.receiver,
        sender=row.sender,
        start=float(row.start_s),
        stop=float(row.stop_s),
        keys=tuple(row.keys),
        busy=row.status == "busy",
        serve_start=_time(row.serve_start_s),
        serialise=float(row.serialise_s or 0.0),
        deserialise=float(row.deserialise_s or 0.0),
    )


def _time(value: Any) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


def _counts(log: pd.DataFrame) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """How many tasks were known and not done, and how many were kept back, from when on."""
    unfinished: dict[str, None] = {}
    queued: dict[str, None] = {}
    steps: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
    for row in log.sort_values("time_s").itertuples():
        _note(unfinished, row.key, row.finish in ("waiting", "queued", "no-worker", "processing"))
        _note(queued, row.key, row.finish == "queued")
        for steps_of, kept in zip(steps, (unfinished, queued), strict=True):
            if not steps_of or steps_of[-1][1] != len(kept):
                steps_of.append((float(row.time_s), len(kept)))
    return steps


def _note(kept: dict[str, None], key: str, here: bool) -> None:
    if here:
        kept[key] = None
    else:
        kept.pop(key, None)
