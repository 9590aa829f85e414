"""What a task that waits for data waits for: the stages of transfers, and the gaps between them.

At each moment the task waits for the fetch that completes last among those under way, because only then can
it start. Walking backwards, the fetches are visited by their end, the latest first; each explains the time
from its start to its end, as far as no later one has explained it. Time that no fetch of the task explains
was spent waiting for another fetch of the same worker (Dask limits how many run at once), or else the worker
was late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask, expand, least_before, pairs
from dasklab.breakdown.model.causes import LAG, PEER, RECEIVED, SERIALISE, WIRE, Cause
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Intervals, Windows
from dasklab.breakdown.model.repeat import CLIENT_CODE, SCHEDULER_CODE, Repeat

SLOW_BYTES_PER_S = 12.5e6  # 100 Mbit/s: what travels more slowly while nobody is busy is held up by the link
FREE_SHARE = 1 / 4  # of the time of a transfer: ends that are free for less may be what holds it up
LEAST_BYTES = 1e6  # fewer have no rate that says something about a link
DIRECTIONS = {"gather": (SCHEDULER_CODE, CLIENT_CODE), "scatter": (CLIENT_CODE, SCHEDULER_CODE)}
"""Sender and receiver of calls in which data crosses the client's link. Graphs go as scattered data does."""


@dataclass(frozen=True)
class Split:
    """Moments that divide the time between two processes: the sender's, the wire's, the receiver's."""

    wire_start: Floats
    wire_stop: Floats


def split(
    repeat: Repeat,
    source: Codes,
    target: Codes,
    start: Floats,
    stop: Floats,
    first_byte: Floats | None = None,
    last_byte: Floats | None = None,
) -> Split:
    """Divide the time between ``start`` (written at the source) and ``stop`` (handled at the target).

    Args:
        first_byte, last_byte: when packets showed them on the wire; NaN, or None, where no capture did.
    """
    _, idle = repeat.busy.around(source, start)
    free, _ = repeat.busy.around(target, stop)
    if first_byte is not None:
        idle = np.where(np.isnan(first_byte), idle, first_byte)
    if last_byte is not None:
        free = np.where(np.isnan(last_byte), free, last_byte)
    wire_stop = np.minimum(np.maximum(start, free), stop)
    wire_start = np.minimum(np.maximum(start, np.minimum(idle, stop)), wire_stop)
    # without a network, the receiver has it as soon as the sender has written it
    return Split(wire_start, wire_start if repeat.on_loopback else wire_stop)


def explain_data(repeat: Repeat, windows: Windows, rows: Codes, start: Floats, stop: Floats) -> None:
    """Add the intervals of a wait for data to some windows.

    Args:
        rows: the windows; each belongs to a task.
        start, stop: when the task had arrived and when all its data was there.
    """
    question, fetch = _fetches_of(repeat, windows.task[rows])
    order = np.lexsort((-repeat.fetches.stop[fetch], question))
    question, fetch = question[order], fetch[order]
    later_start = least_before(question, repeat.fetches.start[fetch], stop[question])
    fetch_stop = np.maximum(start[question], repeat.fetches.stop[fetch])
    explained_until = np.minimum(later_start, fetch_stop)
    explain_fetches(repeat, windows, rows[question], fetch, start[question], explained_until)
    earliest = stop.copy()
    np.minimum.at(earliest, question, repeat.fetches.start[fetch])
    _explain_rest(
        repeat,
        windows,
        np.concatenate([rows[question], rows]),
        np.concatenate([fetch_stop, start]),
        np.concatenate([later_start, earliest]),
    )


def explain_fetches(
    repeat: Repeat, windows: Windows, rows: Codes, fetch: Codes, start: Floats, stop: Floats
) -> None:
    """Add the stages of fetches to some windows, as far as they lie between two moments."""
    fetches = repeat.fetches
    receiver, sender = fetches.receiver[fetch], fetches.sender[fetch]
    fetch_start, fetch_stop = fetches.start[fetch], fetches.stop[fetch]
    incoming, outgoing = repeat.places.pair(receiver, sender), repeat.places.pair(sender, receiver)
    busy = fetches.busy[fetch]

    def add(stage_start: Floats, stage_stop: Floats, cause: Cause, place: Codes, some: Mask = ~busy) -> None:
        index = np.flatnonzero(some)
        clipped = np.maximum(stage_start, start)[index], np.minimum(stage_stop, stop)[index]
        windows.add(rows[index], *clipped, cause, place[index])

    add(fetch_start, fetch_stop, PEER, incoming, busy)
    served = np.clip(np.fmax(fetches.serve_start[fetch], fetch_start), fetch_start, fetch_stop)
    packed = np.minimum(served + fetches.serialise_s[fetch], fetch_stop)
    complete = np.maximum(packed, fetch_stop - fetches.deserialise_s[fetch])
    request = split(repeat, receiver, sender, fetch_start, served)
    add(fetch_start, request.wire_start, RECEIVED, outgoing)
    add(request.wire_start, request.wire_stop, WIRE, outgoing)
    add(request.wire_stop, served, PEER, outgoing)
    add(served, packed, SERIALISE, sender)
    data = split(
        repeat, sender, receiver, packed, complete, fetches.first_byte[fetch], fetches.last_byte[fetch]
    )
    add(packed, data.wire_start, PEER, incoming)
    add(data.wire_start, data.wire_stop, WIRE, incoming)
    add(data.wire_stop, complete, RECEIVED, incoming)
    add(complete, fetch_stop, SERIALISE, receiver)


def fetch_stages(repeat: Repeat) -> tuple[Intervals, Codes]:
    """Return the stages of all fetches, in the order of the fetches.

    Returns:
        The intervals; where those of each fetch begin, and at last their number.
    """
    rows = np.arange(len(repeat.fetches))
    start, stop = repeat.fetches.start, repeat.fetches.stop
    windows = Windows(np.full(len(rows), NONE), start, stop, rows)
    explain_fetches(repeat, windows, rows, rows, start, stop)
    stages = windows.intervals().in_order()
    return stages, np.searchsorted(stages.lane, np.arange(len(rows) + 1))


def _fetches_of(repeat: Repeat, task: Codes) -> tuple[Codes, Codes]:
    """Return pairs of a position in ``task`` and a fetch that brought some of its data, each once."""
    owner, fetch = repeat.task_fetches
    question, index = pairs(owner, task)
    return question, fetch[index]


def _explain_rest(repeat: Repeat, windows: Windows, rows: Codes, start: Floats, stop: Floats) -> None:
    """Explain time in which a task needed data and none of its own fetches was under way."""
    start, stop = np.maximum(start, windows.start[rows]), np.minimum(stop, windows.stop[rows])
    some = stop > start
    rows, start, stop = rows[some], start[some], stop[some]
    worker = repeat.tasks.worker[windows.task[rows]]
    question, fetch = _fetches_between(repeat, worker, start, stop)
    order = np.lexsort((-repeat.fetches.stop[fetch], question))
    question, fetch = question[order], fetch[order]
    later_start = least_before(question, repeat.fetches.start[fetch], stop[question])
    fetch_stop = np.maximum(start[question], repeat.fetches.stop[fetch])
    explained_until = np.minimum(later_start, fetch_stop)
    explain_fetches(repeat, windows, rows[question], fetch, start[question], explained_until)
    # after a peer answered that it is busy, Dask waits before it asks again
    busy = repeat.fetches.busy[fetch]
    pair = repeat.places.pair(repeat.fetches.receiver[fetch], repeat.fetches.sender[fetch])
    for cause, mask, place in ((PEER, busy, pair), (LAG, ~busy, worker[question])):
        windows.add(rows[question[mask]], fetch_stop[mask], later_start[mask], cause, place[mask])
    earliest = stop.copy()
    np.minimum.at(earliest, question, repeat.fetches.start[fetch])
    windows.add(rows, start, earliest, LAG, worker)


def _fetches_between(repeat: Repeat, worker: Codes, start: Floats, stop: Floats) -> tuple[Codes, Codes]:
    """Return pairs of a position in ``worker`` and a fetch of that worker that was under way meanwhile."""
    questions, matches = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for node in np.unique(worker).tolist():
        own = np.flatnonzero(worker == node)
        fetch = np.flatnonzero(repeat.fetches.receiver == node)
        fetch = fetch[np.argsort(repeat.fetches.start[fetch], kind="stable")]
        starts = repeat.fetches.start[fetch]
        # a fetch that began earlier may still be under way: the latest stops so far never decrease
        stops = np.maximum.accumulate(repeat.fetches.stop[fetch]) if len(fetch) else starts
        row, position = expand(
            np.searchsorted(stops, start[own], "right"), np.searchsorted(starts, stop[own])
        )
        under_way = repeat.fetches.stop[fetch[position]] > start[own[row]]
        questions.append(own[row[under_way]])
        matches.append(fetch[position[under_way]])
    return np.concatenate(questions), np.concatenate(matches)


def on_client_link(repeat: Repeat) -> IntervalSets:
    """Return when data crossed the client's link: gathers, scatters and graphs.

    Where workers listen on loopback, the client is usually on that machine too. There only what travelled
    slowly shows that it is behind a link.
    """
    graphs = np.array([(graph.sent, graph.received) for graph in repeat.graphs], float).reshape(-1, 2)
    gathers, scatters = repeat.calls.of_kind("gather"), repeat.calls.of_kind("scatter")
    if repeat.on_loopback:
        graphs, scatters = graphs[slow_graphs(repeat)], (np.zeros(0), np.zeros(0))
        gathers = gathers if _gathers_slowly(repeat) else scatters
    return under_way(
        repeat, *(np.concatenate(ends) for ends in zip(graphs.T, gathers, scatters, strict=True))
    )


def under_way(repeat: Repeat, start: Floats, stop: Floats) -> IntervalSets:
    """Return when something crossed the client's link, of which only the departure and arrival are known.

    That is while neither end was busy. It is all of the time if they were busy for only a part of it: they
    may have been busy with what had arrived while the rest was under way.
    """
    moved = _set(start, stop)
    edges = np.unique(np.concatenate([moved.start, moved.stop, repeat.busy.start, repeat.busy.stop]))
    start, stop = edges[:-1], edges[1:]
    is_moved = moved.within(np.zeros(len(start), np.int64), start, stop) > 0
    free = is_moved & (busy_s(repeat, start, stop) == 0)
    if (stop - start)[free].sum() > FREE_SHARE * (moved.stop - moved.start).sum():
        return moved
    return _set(start[free], stop[free])


def _set(start: Floats, stop: Floats) -> IntervalSets:
    return IntervalSets(np.zeros(len(start), np.int64), start, stop)


def slow_graphs(repeat: Repeat) -> Mask:
    """Return which graphs travelled slowly, the busy time of both ends left out.

    On loopback only large ones: what else delays a small one is not known.
    """
    columns = np.array([(g.sent, g.received, g.nbytes) for g in repeat.graphs], float).reshape(-1, 3)
    departure, arrival, nbytes = columns.T
    slow = nbytes < SLOW_BYTES_PER_S * (arrival - departure - busy_s(repeat, departure, arrival))
    return np.asarray(slow & ((nbytes >= LEAST_BYTES) | (not repeat.on_loopback)), bool)


def _gathers_slowly(repeat: Repeat) -> bool:
    gathers = _set(*repeat.calls.of_kind("gather"))
    seconds = gathers.stop - gathers.start - busy_s(repeat, gathers.start, gathers.stop)
    nbytes = float(result_sizes(repeat).sum())
    return LEAST_BYTES <= nbytes < SLOW_BYTES_PER_S * float(seconds.sum())


def result_sizes(repeat: Repeat) -> Floats:
    """Return the sizes of the results that no task needed: calls do not say which ones they gathered."""
    keys, rows = np.unique(repeat.tasks.key, return_index=True)
    nbytes = repeat.tasks.nbytes[rows]
    return np.asarray(nbytes[~np.isin(keys, repeat.needs.key) & (nbytes > 0)], np.float64)


def busy_s(repeat: Repeat, start: Floats, stop: Floats) -> Floats:
    """Return for how long the event loop of the client or that of the scheduler was busy, at most."""
    ends = (
        repeat.busy.within(np.full(len(start), code), start, stop) for code in (CLIENT_CODE, SCHEDULER_CODE)
    )
    return sum(ends, np.zeros(len(start)))
