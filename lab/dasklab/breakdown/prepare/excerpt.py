"""The part of a repeat in a window of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes, Mask
from dasklab.breakdown.model.evidence import Evidence
from dasklab.breakdown.model.repeat import Calls, Delivered, Graph, Repeat, Shards


def excerpt(repeat: Repeat, start: float, stop: float) -> Repeat:
    """Return the part of a repeat between two moments, with what overlaps it.

    It costs what it contains, so that dividing a long repeat into many excerpts stays linear.
    """
    tasks = repeat.tasks
    inside = (tasks.start < stop) & (np.fmax(tasks.stop, tasks.handled) > start)
    row = _renumber(inside)
    picked = replace(
        tasks,
        key=tasks.key[inside],
        worker=tasks.worker[inside],
        thread=tasks.thread[inside],
        stamps={name: values[inside] for name, values in tasks.stamps.items()},
        freed=tasks.freed[inside],
        has_result=tasks.has_result[inside],
        trigger=_follow(row, tasks.trigger[inside]),
        disk_s=tasks.disk_s[inside],
        nbytes=tasks.nbytes[inside],
    )
    needs = repeat.needs
    own = inside[needs.task] if len(needs.task) else np.zeros(0, bool)
    holders = [needs.holders[index] for index in np.flatnonzero(own).tolist()]
    fetches = repeat.fetches
    moving = (fetches.start < stop) & (fetches.stop > start)
    fetch = _renumber(moving)
    pushed = (repeat.shards.start < stop) & (repeat.shards.stop > start)
    delivered = moving[repeat.delivered.fetch] if len(repeat.delivered.fetch) else np.zeros(0, bool)
    calls = (repeat.calls.start < stop) & (repeat.calls.stop > start)
    kinds = [kind for kind, some in zip(repeat.calls.kind, calls.tolist(), strict=True) if some]
    lines = (repeat.lines.start < stop) & (repeat.lines.stop > start)
    columns = ("start", "stop", "waits", "local", "builds", "code")
    return replace(
        repeat,
        start=start,
        stop=stop,
        tasks=picked,
        needs=replace(
            needs, task=row[needs.task[own]], key=needs.key[own], nbytes=needs.nbytes[own], holders=holders
        ),
        fetches=replace(fetches, **{name: column[moving] for name, column in vars(fetches).items()}),
        shards=Shards(*(column[pushed] for column in vars(repeat.shards).values())),
        delivered=Delivered(fetch[repeat.delivered.fetch[delivered]], repeat.delivered.key[delivered]),
        graphs=[graph for graph in repeat.graphs if _overlaps(graph, start, stop)],
        evidence=_evidence(repeat, inside, row),
        lines=replace(repeat.lines, **{name: getattr(repeat.lines, name)[lines] for name in columns}),
        calls=Calls(kinds, repeat.calls.start[calls], repeat.calls.stop[calls], repeat.calls.missing[calls]),
    )


def _overlaps(graph: Graph, start: float, stop: float) -> bool:
    """Return whether a graph was under way in a window.

    The client's clock is known to some milliseconds only, so a graph may seem to arrive before it began.
    """
    return min(graph.start, graph.received) < stop and max(graph.start, graph.received) >= start


def _evidence(repeat: Repeat, inside: Mask, row: Codes) -> Evidence:
    """Return the evidence for the tasks that stay; that of processes stays whole."""
    evidence = repeat.evidence
    again = np.zeros(len(inside), bool)
    again[evidence.again] = True
    return replace(
        evidence,
        locks=evidence.locks.renumbered(row),
        holding=evidence.holding.renumbered(row),
        measuring=evidence.measuring.renumbered(row),
        nested=evidence.nested.renumbered(row),
        shares=evidence.shares.select(inside),
        again=np.flatnonzero(again[inside]),
    )


def _renumber(inside: Mask) -> Codes:
    """Return the new number of each row that stays."""
    return np.where(inside, np.cumsum(inside) - 1, NONE)


def _follow(row: Codes, reference: Codes) -> Codes:
    return np.where(reference == NONE, NONE, row[reference]) if len(row) else reference
