"""What the critical path speaks for: what a reader would go and look at.

Most causes speak for one bottleneck (``Cause.bottleneck``). Three are divided. Computing that took longer
than the same tasks on other workers speaks for a slow worker; or, if the CPU time of tasks is not known, for
worker lag where the event loop of that worker was held up at the same time. Waiting for data speaks for the
placement as far as another worker would have needed less of it. A graph on its way speaks for the link if it
travelled slowly while neither the client nor the scheduler was busy.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dasklab.breakdown.answers.slow_workers import typical_seconds
from dasklab.breakdown.model.arrays import NONE, Codes, Floats
from dasklab.breakdown.model.causes import (
    CAUSES,
    COMPUTE,
    GRAPHS,
    LATE,
    LINK,
    OWN,
    PLACEMENT,
    SLOW,
    UPLOAD,
    Bottleneck,
    Group,
)
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import CLIENT_CODE, SCHEDULER_CODE, Repeat
from dasklab.records.recorder.layout import SEPARATOR

Cells = dict[tuple[Bottleneck, str], float]
SLOW_BYTES_PER_S = 12.5e6  # 100 Mbit/s: what travels more slowly while nobody is busy is held up by the link


def bottlenecks(repeat: Repeat, path: Intervals) -> Cells:
    """Return the seconds of the critical path by bottleneck and place; a second may be divided."""
    cells: Cells = {}
    of_task = path.task != NONE
    computing = of_task & path.is_cause(COMPUTE)
    of_data = of_task & path.is_cause(*(cause for cause in CAUSES if cause.group is Group.DATA))
    seconds = path.seconds

    slow, lagging = _beyond_usual(repeat, path.task[computing])
    for bottleneck, share in ((LATE, lagging), (SLOW, slow), (OWN, 1 - slow - lagging)):
        _add(repeat, cells, bottleneck, path.place[computing], seconds[computing] * share)

    uploading = path.is_cause(UPLOAD)
    on_wire = _slow_upload(repeat, path.start[uploading], path.stop[uploading])
    client = np.full(int(uploading.sum()), CLIENT_CODE)
    link = repeat.places.pair(np.full(len(client), SCHEDULER_CODE), client)
    _add(repeat, cells, LINK, link, seconds[uploading] * on_wire)
    _add(repeat, cells, GRAPHS, path.place[uploading], seconds[uploading] * (1 - on_wire))

    share = avoidable(repeat, path.task[of_data])
    _add(repeat, cells, PLACEMENT, path.place[of_data], seconds[of_data] * share)
    for cause in CAUSES:
        mine = path.is_cause(cause) & of_data
        _add(repeat, cells, cause.bottleneck, path.place[mine], seconds[mine] * (1 - share[mine[of_data]]))
        mine = path.is_cause(cause) & ~computing & ~of_data & ~uploading
        _add(repeat, cells, cause.bottleneck, path.place[mine], seconds[mine])
    return cells


def _add(repeat: Repeat, cells: Cells, bottleneck: Bottleneck, place: Codes, seconds: Floats) -> None:
    codes, index = np.unique(place, return_inverse=True)
    for code, total in zip(codes.tolist(), np.bincount(index, seconds, len(codes)).tolist(), strict=True):
        cell = bottleneck, repeat.places.name(code)
        cells[cell] = cells.get(cell, 0.0) + total


def _beyond_usual(repeat: Repeat, task: Codes) -> tuple[Floats, Floats]:
    """Return which share of tasks' time a slow worker added, and which share a busy event loop explains.

    While a task takes longer than usual and its worker's event loop is held up too, it is not the work that
    is slow: something holds the interpreter. Unless it is the task: where Dask metered the CPU time of tasks,
    what is left of computing has used a CPU (see ``refine``).
    """
    start, stop = repeat.tasks.start[task], repeat.tasks.stop[task]
    seconds = np.maximum(stop - start, 1e-9)
    beyond = np.maximum(0.0, 1 - typical_seconds(repeat)[task] / seconds)
    lagging = np.minimum(beyond, repeat.busy.within(repeat.tasks.worker[task], start, stop) / seconds)
    if repeat.evidence.idle_share.any():
        lagging = np.zeros(len(task))
    return beyond - lagging, lagging


def _slow_upload(repeat: Repeat, start: Floats, stop: Floats) -> Floats:
    """Return which share of some times a slow link explains: a graph travelled slowly and nobody was busy."""
    columns = np.array([(g.sent, g.received, g.nbytes) for g in repeat.graphs], float).reshape(-1, 3)
    departure, arrival, nbytes = columns.T
    busy = busy_s(repeat, departure, arrival)
    slow = nbytes < SLOW_BYTES_PER_S * (arrival - departure - busy)
    travelling = IntervalSets(np.zeros(int(slow.sum()), np.int64), departure[slow], arrival[slow])
    seconds = travelling.within(np.zeros(len(start), np.int64), start, stop) - busy_s(repeat, start, stop)
    return np.clip(seconds / np.maximum(stop - start, 1e-9), 0.0, 1.0)


def busy_s(repeat: Repeat, start: Floats, stop: Floats) -> Floats:
    """Return for how long the event loop of the client or that of the scheduler was busy, at most."""
    ends = (
        repeat.busy.within(np.full(len(start), code), start, stop) for code in (CLIENT_CODE, SCHEDULER_CODE)
    )
    return sum(ends, np.zeros(len(start)))


def avoidable(repeat: Repeat, task: Codes) -> Floats:
    """Return which share of the data that each task had to fetch a better placement would have avoided."""
    tasks, index = np.unique(task, return_inverse=True)
    needs = repeat.needs
    order = np.argsort(needs.task, kind="stable")
    first, last = (
        np.searchsorted(needs.task[order], tasks),
        np.searchsorted(needs.task[order], tasks, "right"),
    )
    shares = [
        _avoidable(
            [
                (float(needs.nbytes[need]), needs.holders[need].split(SEPARATOR))
                for need in order[begin:end].tolist()
            ],
            repeat.places.nodes[repeat.tasks.worker[row]],
            repeat.threads,
        )
        for row, begin, end in zip(tasks.tolist(), first.tolist(), last.tolist(), strict=True)
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
