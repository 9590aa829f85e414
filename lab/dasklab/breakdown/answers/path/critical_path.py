"""The critical path: backwards from a repeat's end, what it waited for, and what that waited for.

Usually a task waits for the end of its trigger, or for the task that keeps its thread. Where the walk
reaches the arrival of a graph, it goes on through the client: the graph was prepared, sent and built, the
user's code ran, and before that the client learnt of a result; the task that made that result comes before.
After the last result that the user's program waited for, its own code is the path. Of programs that were not
recorded, only their graphs are known: before a graph comes the last task of the same client.
Where a task was chosen for another reason (work stealing, a shuffle, a worker that joined), the last of the
tasks that it needs comes before; if it needs none, the last one that had ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dasklab.breakdown.assign.client_waits import ClientWaits, client_waits, last_handled
from dasklab.breakdown.assign.idle import BY_CLIENT, NO_GRAPH, IdleReasons
from dasklab.breakdown.assign.refine import refine
from dasklab.breakdown.assign.timeline import (
    TimelineStarts,
    explain_after,
    explain_before,
    report_starts,
    timeline_starts,
)
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.causes import COMPUTE, DISK, LAG
from dasklab.breakdown.model.intervals import Intervals, Windows, concatenate
from dasklab.breakdown.model.repeat import Extent, Graph, Repeat


@dataclass(frozen=True)
class Predecessors:
    """What comes before each task on a path.

    Attributes:
        timeline_start: where the explanation of the task begins.
        task: the row of the task before; ``NONE`` at the beginning.
        is_direct: whether that task ends at ``timeline_start``. Else a gap lies between ``resume`` and it.
        resume: when the scheduler had handled the end of the task before.
        gap: what explains the gap (see ``idle``): the graph that the task waited for, or ``NO_GRAPH``.
    """

    timeline_start: Floats
    task: Codes
    is_direct: Mask
    resume: Floats
    gap: Codes


@dataclass
class Chain:
    """A path in pieces, the last one first."""

    tasks: list[tuple[int, float, float, float]] = field(
        default_factory=list
    )  # row, timeline start, start, stop
    reports: list[tuple[int, float, float]] = field(default_factory=list)  # row, start, stop
    gaps: list[tuple[int, int, float, float]] = field(
        default_factory=list
    )  # what explains it, worker of the task after it, start, stop


def critical_path(repeat: Repeat) -> Intervals:
    """Return the intervals of the path, sorted, without gaps, from the repeat's start to its end."""
    origin = timeline_starts(repeat)
    chain = _follow(repeat, origin)
    task, timeline_start, start, stop = _columns(chain.tasks, 4)
    computing = _windows(repeat, task, start, stop)
    computing.add(np.arange(len(task)), start, stop, COMPUTE, repeat.tasks.worker[computing.task])
    # the disk's time is the last part of the timeline, as for threads
    read = np.maximum(timeline_start, start - repeat.tasks.disk_s[computing.task])
    waiting = _windows(repeat, task, timeline_start, read)
    explain_before(repeat, waiting)
    first_stamp = np.minimum(read, origin.start[waiting.task])
    waiting.add(np.arange(len(task)), timeline_start, first_stamp, LAG, repeat.tasks.worker[waiting.task])
    disk = _windows(repeat, task, read, start)
    disk.add(np.arange(len(task)), read, start, DISK, repeat.tasks.worker[computing.task])
    reports = _windows(repeat, *_columns(chain.reports, 3))
    explain_after(repeat, reports)
    kind, worker, start, stop = _columns(chain.gaps, 4)
    gaps = _windows(repeat, np.full(len(kind), NONE), start, stop)
    IdleReasons(repeat).explain_gaps(gaps, kind.astype(np.int64), worker.astype(np.int64))
    parts = (computing, waiting, disk, reports, gaps)
    return refine(repeat, concatenate([part.intervals() for part in parts]))


def _columns(rows: Sequence[tuple[float, ...]], width: int) -> tuple[Floats, ...]:
    return tuple(np.array(rows, float).reshape(-1, width).T)


def _windows(repeat: Repeat, task: Floats | Codes, start: Floats, stop: Floats) -> Windows:
    return Windows(
        task.astype(np.int64), np.maximum(start, repeat.start), stop, np.zeros(len(task), np.int64)
    )


def _follow(repeat: Repeat, origin: TimelineStarts) -> Chain:
    """Go from the last task that was waited for to the one before, until the repeat's start."""
    chain = Chain()
    waits = client_waits(repeat)
    task, handled = _last(repeat, waits)
    stop = min(max(handled, repeat.start), repeat.stop)
    chain.gaps.append((NO_GRAPH if waits.is_cut else BY_CLIENT, NONE, stop, repeat.stop))
    before = _predecessors(repeat, origin, waits)  # lists: single items of arrays are slow
    timeline_start, resume = before.timeline_start.tolist(), before.resume.tolist()
    previous, is_direct, gap = before.task.tolist(), before.is_direct.tolist(), before.gap.tolist()
    start, reported = repeat.tasks.start.tolist(), report_starts(repeat).tolist()
    worker = repeat.tasks.worker.tolist()
    visited: set[int] = set()
    is_reported = False  # whether the time from the task's end on is explained already
    while task != NONE and task not in visited and stop > repeat.start:
        visited.add(task)
        if not is_reported:
            chain.reports.append((task, min(stop, reported[task]), stop))
            stop = min(stop, reported[task])
        computing = min(stop, start[task])
        chain.tasks.append((task, min(computing, timeline_start[task]), computing, stop))
        stop, is_reported = min(computing, timeline_start[task]), is_direct[task]
        if not is_reported:
            resumed = max(repeat.start, min(stop, resume[task]))
            chain.gaps.append((gap[task], worker[task], resumed, stop))
            stop = resumed
        task = previous[task]
        if task in visited:  # stamps contradict each other: go on with what ended last before
            task = _last_handled(repeat, stop, visited)
            resumed = float(repeat.tasks.handled[task]) if task != NONE else repeat.start
            chain.gaps.append((NO_GRAPH, NONE, max(repeat.start, resumed), stop))
            stop, is_reported = max(repeat.start, resumed), False
    chain.gaps.append((NO_GRAPH, NONE, repeat.start, stop))
    return chain


def _last(repeat: Repeat, waits: ClientWaits) -> tuple[int, float]:
    """Return the last task that was waited for, and when the scheduler had handled its end.

    Where nobody recorded whether the program waited, it is the last one that was handled.
    """
    stop = np.array([repeat.stop])
    task, handled = waits.before(stop)
    if task[0] == NONE and not len(repeat.lines.start):
        task, handled = last_handled(repeat, np.array([np.inf]), repeat.is_users)
    return int(task[0]), float(handled[0])


def _last_handled(repeat: Repeat, time: float, visited: set[int]) -> int:
    """Return the last task whose end the scheduler had handled by a time, except some."""
    order = repeat.tasks.handled_order
    position = int(np.searchsorted(repeat.tasks.handled[order], time, side="right")) - 1
    while position >= 0 and int(order[position]) in visited:
        position -= 1
    return int(order[position]) if position >= 0 else NONE


def _predecessors(repeat: Repeat, origin: TimelineStarts, waits: ClientWaits) -> Predecessors:
    tasks, previous = repeat.tasks, repeat.previous_on_thread
    freed = np.where(previous != NONE, tasks.freed[previous], np.nan)
    by_thread = freed > _ready(repeat, freed)
    is_direct = by_thread | (origin.trigger != NONE)
    need, needed = _last_need(repeat)
    graph, arrival, source, learnt = _graphs_before(repeat, origin.start, waits)
    other, handled = last_handled(repeat, origin.start, np.ones(len(tasks), bool))
    is_later = handled > _first_decision(origin.start, graph)
    by_other = (need == NONE) & ((graph == NONE) | is_later)  # old versions of Dask report no graphs
    need, needed = np.where(by_other, other, need), np.where(by_other, handled, needed)
    by_graph = (graph != NONE) & ~(needed > arrival)
    return Predecessors(
        timeline_start=np.where(by_thread, freed, origin.start),
        task=np.where(
            is_direct, np.where(by_thread, previous, origin.trigger), np.where(by_graph, source, need)
        ),
        is_direct=is_direct,
        resume=np.where(by_graph, learnt, needed),
        gap=np.where(by_graph, graph, NO_GRAPH),
    )


def _ready(repeat: Repeat, freed: Floats) -> Floats:
    """Return since when each task could have run; infinity if no thread kept it waiting.

    Where its worker did not say it, it could since it was assigned; of a task that was assigned before the
    recording, that is always.

    Args:
        freed: when its thread became free, as far as that is known.
    """
    ready, assigned = repeat.tasks.stamps["ready"], repeat.tasks.stamps["decided"]
    since = np.where(freed <= repeat.tasks.start, np.nan_to_num(assigned, nan=-np.inf), np.inf)
    return np.where(np.isnan(ready), since, ready)


def _first_decision(timeline_start: Floats, graph: Codes) -> Floats:
    """Return for each task when the first task after the arrival of the same graph began.

    The scheduler prepares a graph in one go. A task that it chose after it had handled the end of another one
    waited for something else: for a worker that joined, for instance.
    """
    first = np.full(graph.max(initial=NONE) + 1, np.inf)
    np.minimum.at(first, graph[graph != NONE], timeline_start[graph != NONE])
    return np.append(first, np.inf)[graph]


def _last_need(repeat: Repeat) -> tuple[Codes, Floats]:
    """Return for each task the one of its dependencies that was handled last, and when."""
    computed = repeat.need_source != NONE
    task, source = repeat.needs.task[computed], repeat.need_source[computed]
    handled = repeat.tasks.handled[source]
    order = np.lexsort((handled, task))
    last, when = np.full(len(repeat.tasks), NONE), np.full(len(repeat.tasks), -np.inf)
    last[task[order]], when[task[order]] = source[order], handled[order]
    return last, when


def _graphs_before(repeat: Repeat, time: Floats, waits: ClientWaits) -> tuple[Codes, Floats, Codes, Floats]:
    """Return for each task the last graph of its client that had arrived by a time, and when it had.

    Then the task that the client waited for before it built that graph, and when the scheduler had handled
    that task. ``NONE`` and minus infinity where there is no graph, or where the client had waited for none.
    A graph of a client that is none of the user's says nothing about the user's program.
    """
    nothing, never = np.full(len(time), NONE), np.full(len(time), -np.inf)
    number = [
        number
        for number, graph in enumerate(repeat.graphs)
        if graph.is_recorded or repeat.extent is Extent.WATCHED
    ]
    if not number:
        return nothing, never, nothing, never
    graphs = [repeat.graphs[row] for row in number]
    arrival = np.array([graph.received for graph in graphs])
    source, handled = waits.before(np.array([graph.start for graph in graphs]))
    if repeat.extent is Extent.WATCHED:
        source, handled = _handled_of_same_client(repeat, graphs)
    graph = nothing.copy()
    client, clients = repeat.task_clients
    for code, name in enumerate(clients):
        of_client = np.flatnonzero(client == code)
        own = np.array([number for number, graph in enumerate(graphs) if graph.client == name], np.int64)
        own = own if len(own) else np.arange(len(graphs))  # of an unknown client: any
        position = np.searchsorted(arrival[own], time[of_client], side="right") - 1
        graph[of_client] = np.append(own, NONE)[position]
    has = graph != NONE
    return (
        np.where(has, np.array(number)[graph], NONE),
        np.where(has, arrival[graph], -np.inf),
        np.where(has, source[graph], NONE),
        np.where(has, handled[graph], -np.inf),
    )


def _handled_of_same_client(repeat: Repeat, graphs: Sequence[Graph]) -> tuple[Codes, Floats]:
    """Return for each graph the last task of its client that was handled before it arrived, and when."""
    client, clients = repeat.task_clients
    source, handled = np.full(len(graphs), NONE), np.full(len(graphs), -np.inf)
    for name in {graph.client for graph in graphs}:
        own = [number for number, graph in enumerate(graphs) if graph.client == name]
        arrival = np.array([graphs[number].received for number in own])
        among = client == clients.index(name) if name in clients else np.zeros(len(client), bool)
        source[own], handled[own] = last_handled(repeat, arrival, among)
    return source, handled
