"""Cut a window of time out of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Mask
from dasklab.breakdown.model.evidence import Evidence
from dasklab.breakdown.model.run import NONE, Calls, Delivered, Graph, Run


def cut(run: Run, start: float, stop: float) -> Run:
    """Return the part of a run between two moments, with what overlaps it.

    It costs what it contains, so that cutting a long run into many windows stays linear.
    """
    tasks = run.tasks
    inside = (tasks.start < stop) & (np.fmax(tasks.stop, tasks.handled) > start)
    row = _renumber(inside)
    picked = replace(
        tasks,
        key=tasks.key[inside],
        worker=tasks.worker[inside],
        thread=tasks.thread[inside],
        stamps={name: values[inside] for name, values in tasks.stamps.items()},
        trigger=_follow(row, tasks.trigger[inside]),
        disk_s=tasks.disk_s[inside],
        nbytes=tasks.nbytes[inside],
    )
    needs = run.needs
    mine = inside[needs.task] if len(needs.task) else np.zeros(0, bool)
    holders = [needs.holders[index] for index in np.flatnonzero(mine).tolist()]
    fetches = run.fetches
    moving = (fetches.start < stop) & (fetches.stop > start)
    fetch = _renumber(moving)
    delivered = moving[run.delivered.fetch] if len(run.delivered.fetch) else np.zeros(0, bool)
    calls = (run.calls.start < stop) & (run.calls.stop > start)
    kinds = [kind for kind, some in zip(run.calls.kind, calls.tolist(), strict=True) if some]
    return replace(
        run,
        start=start,
        stop=stop,
        tasks=picked,
        needs=replace(
            needs, task=row[needs.task[mine]], key=needs.key[mine], nbytes=needs.nbytes[mine], holders=holders
        ),
        fetches=replace(fetches, **{name: column[moving] for name, column in vars(fetches).items()}),
        delivered=Delivered(fetch[run.delivered.fetch[delivered]], run.delivered.key[delivered]),
        graphs=[graph for graph in run.graphs if _overlaps(graph, start, stop)],
        evidence=_evidence(run, inside, row),
        calls=Calls(kinds, run.calls.start[calls], run.calls.stop[calls]),
    )


def _overlaps(graph: Graph, start: float, stop: float) -> bool:
    """Return whether a graph was under way in a window.

    The client's clock is known to some milliseconds only, so a graph may seem to arrive before it began.
    """
    return min(graph.begin, graph.received) < stop and max(graph.begin, graph.received) >= start


def _evidence(run: Run, inside: Mask, row: Codes) -> Evidence:
    """Return the evidence for the tasks that stay; that of processes stays whole."""
    evidence = run.evidence
    again = np.zeros(len(inside), bool)
    again[evidence.again] = True
    return replace(
        evidence,
        locks=evidence.locks.renumbered(row),
        holding=evidence.holding.renumbered(row),
        nested=evidence.nested.renumbered(row),
        idle_share=evidence.idle_share[inside],
        again=np.flatnonzero(again[inside]),
    )


def _renumber(inside: Mask) -> Codes:
    """Return the new number of each row that stays."""
    return np.where(inside, np.cumsum(inside) - 1, NONE)


def _follow(row: Codes, reference: Codes) -> Codes:
    return np.where(reference == NONE, NONE, row[reference]) if len(row) else reference
