"""Evidence for each critical-path segment: its task, transfer, graph or call.

A piece of which nothing can be listed is no answer: ``is_listed`` is one of the invariants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dasklab.breakdown.answers.bottlenecks.bottlenecks import attributions
from dasklab.breakdown.assign.client_time import ClientTime
from dasklab.breakdown.assign.timeline import explain_after, explain_before
from dasklab.breakdown.assign.transfers import fetch_stages, on_client_link
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.causes import (
    ACTOR,
    ANSWER,
    BETWEEN,
    BUILD,
    CAUSES,
    GATHER,
    MESSAGE,
    NO_WORKER,
    NOTHING,
    PAUSED,
    PLAN,
    QUEUE,
    RESULT,
    SCATTER,
    UNDIVIDED,
    UPLOAD,
    USER,
    WIRE,
    Bottleneck,
    Cause,
    Group,
)
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import TICK_S, Intervals, Windows
from dasklab.breakdown.model.repeat import CLIENT, Repeat
from dasklab.terminal import counted, data_size

CALLS = {GATHER: ("gather",), SCATTER: ("scatter",), RESULT: ("sync", "wait"), ANSWER: ("sync", "wait")}
GRAPHS = (BUILD, UPLOAD, PLAN)
FIXED = {
    UNDIVIDED: ("unknown", "no evidence, or pieces of it contradict each other"),
    NO_WORKER: ("cluster", "no worker was connected"),
    PAUSED: ("pause", "memory nearly full"),
}
NETWORK = "the network"
CLOCK_S = 0.005  # the client's clock may be off by this


@dataclass(frozen=True)
class Item:
    """Something that a clause rests on, and how many of the clause's seconds.

    Attributes:
        kind: task, attempt, transfer, message, graph, call, pause, queue, thread, client, cluster, worker,
            actor, samples or unknown.
        name: a task's key, or what it is.
        thread: which of the worker's threads ran it, from 1 on; empty if no thread did.
        start_s, stop_s: its first and its last moment in the clause, since the start of the run.
    """

    kind: str
    name: str
    place: str
    thread: str
    start_s: float
    stop_s: float
    seconds: float


@dataclass(frozen=True)
class Grounds:
    """A clause of the answer, with all that it rests on.

    Attributes:
        clause: title of the bottleneck or the cause.
        names: what a reader may call it, among them the titles of its causes.
        total_s: seconds that the clause is a share of: the run, or the time of all threads; 0 if it may be
            more than either.
    """

    clause: str
    names: Sequence[str]
    of_threads: bool
    seconds: float
    total_s: float
    items: Sequence[Item]


def is_listed(repeat: Repeat, path: Intervals) -> Mask:
    """Return of which intervals of a path there is something to list."""
    listed = path.task != NONE
    client = ClientTime(repeat)
    spans = client.spans
    for cause, (start, stop) in ((BUILD, client.building), *spans.items()):
        rows = np.flatnonzero(path.is_cause(cause))
        near = IntervalSets(np.zeros(len(start), np.int64), start - CLOCK_S, stop + CLOCK_S)
        listed[rows] |= near.within(np.zeros(len(rows), np.int64), path.start[rows], path.stop[rows]) > 0
    listed |= path.is_cause(UNDIVIDED, BETWEEN, NO_WORKER) | path.is_cause(USER) & client_is_recorded(repeat)
    others = [cause for cause in CAUSES if cause.group not in (Group.CLIENT, Group.IDLE)]
    others = [QUEUE, *(cause for cause in others if cause not in spans)]
    listed |= path.is_cause(*others) & (path.place != NONE)
    return np.asarray(listed & ~path.is_cause(NOTHING), bool)


def client_is_recorded(repeat: Repeat) -> bool:
    """Whether the absence of calls and graphs says something: that the client was outside of Dask."""
    return len(repeat.calls.kind) + len(repeat.lines.start) > 0 or any(
        graph.is_recorded for graph in repeat.graphs
    )


def of_path(repeat: Repeat, path: Intervals) -> Iterator[Grounds]:
    """Return what each bottleneck of a checked path rests on, the largest first."""
    seconds: defaultdict[Bottleneck, float] = defaultdict(float)
    items: defaultdict[Bottleneck, list[Item]] = defaultdict(list)
    for part in attributions(repeat, path):
        some = part.seconds > TICK_S
        rows, shares = part.rows[some], part.seconds[some]
        seconds[part.bottleneck] += float(shares.sum())
        items[part.bottleneck] += _items(repeat, replace(path.select(rows), place=part.place[some]), shares)
    for bottleneck in sorted(items, key=lambda name: -seconds[name]):
        if items[bottleneck]:
            causes = [cause for cause in CAUSES if cause.bottleneck is bottleneck]
            titles, names = [cause.title for cause in causes], [cause.name for cause in causes]
            yield Grounds(
                bottleneck.title,
                (bottleneck.title, bottleneck.name, *titles, *names),
                False,
                seconds[bottleneck],
                repeat.makespan,
                _together(items[bottleneck]),
            )


def of_threads(repeat: Repeat, threads: Intervals) -> Iterator[Grounds]:
    """Return for each cause which threads had it, the cause with most seconds first."""
    total_s = float(threads.seconds.sum())
    sums = np.bincount(threads.cause, threads.seconds, minlength=len(CAUSES))
    for code in np.argsort(-sums, kind="stable").tolist():
        if sums[code] > TICK_S:
            parts, cause = threads.select(threads.cause == code), CAUSES[code]
            items = [
                _thread(repeat, parts.select(parts.lane == lane), lane) for lane in np.unique(parts.lane)
            ]
            items.sort(key=lambda item: -item.seconds)
            yield Grounds(cause.title, (cause.title, cause.name), True, float(sums[code]), total_s, items)


def of_network(repeat: Repeat) -> Grounds:
    """Return what the sentence about the network rests on: what was under way while neither end was busy."""
    tasks, rows = repeat.tasks, np.arange(len(repeat.tasks))
    assignments = Windows(rows, tasks.assigned, tasks.start, rows)
    explain_before(repeat, assignments)
    reports = Windows(rows, tasks.stop, tasks.handled, rows)
    explain_after(repeat, reports)
    stages, _ = fetch_stages(repeat)
    link = on_client_link(repeat)
    start, stop = (
        np.clip(ends, repeat.start, repeat.stop) - repeat.start for ends in (link.start, link.stop)
    )
    crossings = zip(start.tolist(), stop.tolist(), strict=True)
    items = [
        *_by_place(repeat, "message", "to workers", assignments.intervals(), MESSAGE),
        *_by_place(repeat, "message", "of the ends of tasks", reports.intervals(), MESSAGE),
        *_by_place(repeat, "transfer", "between workers", stages, WIRE),
        *(
            Item("transfer", "over the client's link", CLIENT, "", start, stop, stop - start)
            for start, stop in crossings
        ),
    ]
    items.sort(key=lambda item: -item.seconds)
    return Grounds(NETWORK, (NETWORK,), False, sum(item.seconds for item in items), 0.0, items)


def of_tasks(repeat: Repeat, rows: Codes) -> list[Item]:
    """Return an item for each of some tasks, the longest first."""
    tasks, lanes = repeat.tasks, repeat.thread_rows[0]
    order = rows[np.argsort(tasks.start[rows] - tasks.stop[rows], kind="stable")]
    start, stop = tasks.start[order] - repeat.start, tasks.stop[order] - repeat.start
    return [
        Item(
            "task",
            repeat.keys[tasks.key[row]],
            repeat.places.name(int(tasks.worker[row])),
            _thread_number(repeat, int(lanes[row])),
            start_s,
            stop_s,
            stop_s - start_s,
        )
        for row, start_s, stop_s in zip(order.tolist(), start.tolist(), stop.tolist(), strict=True)
    ]


def _by_place(repeat: Repeat, kind: str, name: str, intervals: Intervals, cause: Cause) -> Iterator[Item]:
    """Return an item for each pair of processes between which something was under way."""
    start, stop = (np.clip(ends, repeat.start, repeat.stop) for ends in (intervals.start, intervals.stop))
    mine = replace(intervals, start=start, stop=stop).select(intervals.is_cause(cause) & (stop > start))
    for place in np.unique(mine.place).tolist():
        pieces = mine.select(mine.place == place)
        yield Item(
            kind,
            f"{counted(len(np.unique(pieces.lane)), kind)} {name}",
            repeat.places.name(place),
            "",
            float(pieces.start.min()) - repeat.start,
            float(pieces.stop.max()) - repeat.start,
            float(pieces.seconds.sum()),
        )


def _thread(repeat: Repeat, pieces: Intervals, lane: int) -> Item:
    return Item(
        "thread",
        counted(len(pieces), "piece"),
        repeat.thread_rows[1][lane][0],
        _thread_number(repeat, lane),
        float(pieces.start.min()) - repeat.start,
        float(pieces.stop.max()) - repeat.start,
        float(pieces.seconds.sum()),
    )


def _thread_number(repeat: Repeat, lane: int) -> str:
    """Return which of its worker's threads a lane is, from 1 on."""
    threads = repeat.thread_rows[1]
    first = next(number for number, (worker, _) in enumerate(threads) if worker == threads[lane][0])
    return str(lane - first + 1)


def _items(repeat: Repeat, pieces: Intervals, seconds: Floats) -> Iterator[Item]:
    rows = zip(
        pieces.start.tolist(),
        pieces.stop.tolist(),
        pieces.cause.tolist(),
        pieces.place.tolist(),
        pieces.task.tolist(),
        seconds.tolist(),
        strict=True,
    )
    for start, stop, code, place, task, share in rows:
        kind, name = _subject(repeat, CAUSES[code], start, stop, place, task)
        at_worker = kind == "task" and repeat.tasks.worker[task] == place
        thread = _thread_number(repeat, int(repeat.thread_rows[0][task])) if at_worker else ""
        yield Item(
            kind, name, repeat.places.name(place), thread, start - repeat.start, stop - repeat.start, share
        )


def _subject(
    repeat: Repeat, cause: Cause, start: float, stop: float, place: int, task: int
) -> tuple[str, str]:
    """Return the kind and name of a segment's subject."""
    if cause in FIXED:
        return FIXED[cause]
    if task != NONE:
        key = repeat.keys[repeat.tasks.key[task]]
        if cause.group is Group.DATA:
            return "transfer", f"data for {key}"
        return ("message", f"of {key}") if cause.group is Group.SCHEDULER else ("task", key)
    if cause in CALLS:
        return "call", _call(repeat, CALLS[cause], start, stop)
    if cause in GRAPHS:
        return "graph", _built_graph(repeat, start) if cause is BUILD else _graph(repeat, stop)
    if cause is QUEUE:
        return "queue", _queue(repeat, place, start)
    if cause is ACTOR:
        return "actor", counted(len(repeat.evidence.actors.start), "call of a method", "calls of methods")
    if cause in (USER, BETWEEN):
        return "client", "no call and no graph under way"
    return "message", cause.title


def _call(repeat: Repeat, kinds: Sequence[str], start: float, stop: float) -> str:
    calls = repeat.calls
    overlap = np.minimum(calls.stop, stop) - np.maximum(calls.start, start)
    overlap = np.where(np.isin(np.array(calls.kind, object), kinds), overlap, -np.inf)
    if overlap.max(initial=-np.inf) < -CLOCK_S:  # as_completed waits in none of these
        return "a line in which the program waited for the cluster"
    row = int(overlap.argmax())
    start_s, stop_s = calls.start[row] - repeat.start, calls.stop[row] - repeat.start
    return f"{calls.kind[row]}, {start_s:.3f} s to {stop_s:.3f} s"


def _built_graph(repeat: Repeat, time: float) -> str:
    """Name the first recorded graph that was sent after a time."""
    later = (n for n, graph in enumerate(repeat.graphs) if graph.is_recorded and graph.sent > time)
    number = next(later, NONE)
    return "a graph that was not sent" if number == NONE else _name(repeat, number)


def _graph(repeat: Repeat, time: float) -> str:
    """Name the last graph that began before a time; the first one if clocks say that none did."""
    before = [number for number, graph in enumerate(repeat.graphs) if graph.start <= time + CLOCK_S]
    return _name(repeat, before[-1] if before else 0)


def _name(repeat: Repeat, number: int) -> str:
    graph = repeat.graphs[number]
    size = f", {data_size(graph.nbytes)}" if graph.nbytes else ""
    return f"graph {number + 1}: {counted(graph.tasks, 'task')}{size}"


def _queue(repeat: Repeat, place: int, time: float) -> str:
    if place not in repeat.load:
        return "tasks that the scheduler kept back"
    waiting = int(repeat.load[place].at(np.array([time]))[0])
    return f"{counted(waiting, 'task')} for {counted(repeat.threads[repeat.places.nodes[place]], 'thread')}"


def _together(items: Sequence[Item]) -> list[Item]:
    """Put the pieces of the same thing together, the longest first."""
    groups: defaultdict[tuple[str, str, str, str], list[Item]] = defaultdict(list)
    for item in items:
        # each stretch without evidence, and of the client's own code, stands alone
        own = f"{item.start_s}" if item.kind in ("unknown", "client") else ""
        groups[item.kind, item.name + own, item.place, item.thread].append(item)
    merged = [
        replace(
            group[0],
            start_s=min(item.start_s for item in group),
            stop_s=max(item.stop_s for item in group),
            seconds=sum(item.seconds for item in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda item: -item.seconds)
