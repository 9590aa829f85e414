"""Group critical-path time into bottlenecks worth investigating.

Most causes speak for one bottleneck (``Cause.bottleneck``). Three are divided. Computing that took longer
than the same tasks on other workers speaks for a slow worker; or, if the CPU time of tasks is not known, for
worker lag where the event loop of that worker was held up at the same time. Waiting for data speaks for the
placement as far as another worker would have needed less of it; packing and unpacking does not, because it is
the kind of object that makes it slow. A graph on its way speaks for the link if it
travelled slowly while neither the client nor the scheduler was busy. A message that carries a large part of a
graph speaks for the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dasklab.breakdown.answers.bottlenecks.slow_workers import cpu_seconds, typical_seconds
from dasklab.breakdown.assign.transfers import LEAST_BYTES, SLOW_BYTES_PER_S, slow_graphs, under_way
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.causes import (
    CAUSES,
    COMPUTE,
    COMPUTING,
    GRAPHS,
    LAG,
    LINK,
    LOOP,
    MESSAGE,
    PEER,
    PLACEMENT,
    RECEIVED,
    SLOW,
    UPLOAD,
    WIRE,
    WORKER_LAG,
    Bottleneck,
)
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import CLIENT_CODE, SCHEDULER_CODE, Repeat
from dasklab.records.recorder.layout import KEY_SEPARATOR

Cells = dict[tuple[Bottleneck, str], float]


@dataclass(frozen=True)
class Attribution:
    """Seconds of some intervals of a path that speak for a bottleneck.

    Attributes:
        rows: positions of the intervals.
        place: codes of their places, which are not those of the intervals where a link is meant.
    """

    bottleneck: Bottleneck
    rows: Codes
    place: Codes
    seconds: Floats


def bottlenecks(repeat: Repeat, path: Intervals) -> Cells:
    """Return the seconds of the critical path by bottleneck and place; a second may be divided."""
    cells: Cells = {}
    for part in attributions(repeat, path):
        codes, index = np.unique(part.place, return_inverse=True)
        totals = np.bincount(index, part.seconds, len(codes)).tolist()
        for code, total in zip(codes.tolist(), totals, strict=True):
            cell = part.bottleneck, repeat.places.name(code)
            cells[cell] = cells.get(cell, 0.0) + total
    return cells


def attributions(repeat: Repeat, path: Intervals) -> Iterator[Attribution]:
    """Divide the seconds of the critical path among bottlenecks."""
    of_task = path.task != NONE
    is_computing = of_task & path.is_cause(COMPUTE)
    is_data = of_task & path.is_cause(WIRE, PEER, RECEIVED)
    is_upload = path.is_cause(UPLOAD)
    computing, of_data, uploading = map(np.flatnonzero, (is_computing, is_data, is_upload))

    def part(bottleneck: Bottleneck, rows: Codes, share: Floats | float) -> Attribution:
        return Attribution(bottleneck, rows, path.place[rows], path.seconds[rows] * share)

    slow, lagging = _beyond_expected(repeat, path.task[computing])
    for bottleneck, share in ((WORKER_LAG, lagging), (SLOW, slow), (COMPUTING, 1 - slow - lagging)):
        yield part(bottleneck, computing, share)

    on_wire = _slow_upload(repeat, path.start[uploading], path.stop[uploading])
    client = np.full(len(uploading), CLIENT_CODE)
    link = repeat.places.pair(np.full(len(client), SCHEDULER_CODE), client)
    yield replace(part(LINK, uploading, on_wire), place=link)
    yield part(GRAPHS, uploading, 1 - on_wire)

    placed = np.zeros(len(path))
    placed[of_data] = avoidable(repeat, path.task[of_data])
    yield part(PLACEMENT, of_data, placed[of_data])
    carries = _carries_graph(repeat, path)
    yield part(GRAPHS, np.flatnonzero(carries), 1.0)
    for cause in CAUSES:
        own = np.flatnonzero(path.is_cause(cause) & ~is_computing & ~is_upload & ~carries)
        yield part(cause.bottleneck, own, 1 - placed[own])


def _beyond_expected(repeat: Repeat, task: Codes) -> tuple[Floats, Floats]:
    """Return which share of tasks' time a slow worker added, and which share a busy event loop explains.

    While a task takes longer than usual and its worker's event loop is held up too, it is not the work that
    is slow: something holds the interpreter. Unless it is the task: where Dask metered the CPU time of tasks,
    what is left of computing has used a CPU (see ``refine``).
    """
    start, stop = repeat.tasks.start[task], repeat.tasks.stop[task]
    cpu_s = cpu_seconds(repeat)
    beyond = np.maximum(0.0, 1 - typical_seconds(repeat, cpu_s)[task] / np.maximum(cpu_s[task], 1e-9))
    seconds = np.maximum(stop - start, 1e-9)
    lagging = np.minimum(beyond, repeat.busy.within(repeat.tasks.worker[task], start, stop) / seconds)
    if repeat.evidence.shares.idle.any():
        lagging = np.zeros(len(task))
    return beyond - lagging, lagging


def _slow_upload(repeat: Repeat, start: Floats, stop: Floats) -> Floats:
    """Return which share of some times a slow link explains: graphs travelled slowly."""
    slow = slow_graphs(repeat)
    ends = np.array([(graph.sent, graph.received) for graph in repeat.graphs], float).reshape(-1, 2)[slow]
    seconds = under_way(repeat, *ends.T).within(np.zeros(len(start), np.int64), start, stop)
    return np.clip(seconds / np.maximum(stop - start, 1e-9), 0.0, 1.0)


def _carries_graph(repeat: Repeat, path: Intervals) -> Mask:
    """Return in which intervals of a path a task waited for its own large part of a graph.

    Functions and arguments of a task go on to its worker with the message that assigns it. Packing, sending,
    unpacking and handling them takes one time that nobody divides. The rate shows a slow link.
    """
    own = np.flatnonzero(path.is_cause(LOOP, MESSAGE, LAG) & (path.task != NONE))
    own = own[path.stop[own] <= repeat.tasks.start[path.task[own]]]
    arrival = np.array([graph.received for graph in repeat.graphs])
    part = np.array([graph.nbytes / max(1, graph.tasks) for graph in repeat.graphs] + [0.0])
    nbytes = part[np.searchsorted(arrival, repeat.tasks.assigned[path.task[own]], side="right") - 1]
    is_slow = path.is_cause(MESSAGE)[own] & (nbytes < SLOW_BYTES_PER_S * path.seconds[own])
    carries = np.zeros(len(path), bool)
    carries[own[(nbytes >= LEAST_BYTES) & ~is_slow]] = True
    return carries


def avoidable(repeat: Repeat, task: Codes) -> Floats:
    """Return which share of the data that each task had to fetch a better placement would have avoided."""
    tasks, index = np.unique(task, return_inverse=True)
    needs = repeat.needs
    order = np.argsort(needs.task, kind="stable")
    starts, stops = (
        np.searchsorted(needs.task[order], tasks),
        np.searchsorted(needs.task[order], tasks, "right"),
    )
    shares = [
        _avoidable(
            [
                (float(needs.nbytes[need]), needs.holders[need].split(KEY_SEPARATOR))
                for need in order[start:stop].tolist()
            ],
            repeat.places.nodes[repeat.tasks.worker[row]],
            repeat.threads,
        )
        for row, start, stop in zip(tasks.tolist(), starts.tolist(), stops.tolist(), strict=True)
    ]
    return np.array(shares, float)[index]


def _avoidable(needs: list[tuple[float, Iterable[str]]], worker: str, workers: Iterable[str]) -> float:
    total = sum(nbytes for nbytes, _ in needs)
    stored = dict.fromkeys(workers, 0.0)
    for nbytes, holders in needs:
        for holder in stored.keys() & set(holders):
            stored[holder] += nbytes
    fetched = total - stored.get(worker, 0.0)
    return 1 - (total - max(stored.values(), default=0.0)) / fetched if fetched > 0 else 0.0
