"""Collect the evidence of a repeat from the rows of its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, floats, last_before, positions
from dasklab.breakdown.model.evidence import CpuUse, Evidence, StackSample
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.prepare.capacity import Stays, stays
from dasklab.breakdown.prepare.deaths import deaths_of
from dasklab.breakdown.prepare.idle_time import Spans, idle_shares
from dasklab.records.assemble import UNFINISHED
from dasklab.records.recorder.scheduler import LOST_ATTEMPT, NOT_LOST
from dasklab.records.recorder.waits import CLIENT as OF_CLIENT
from dasklab.records.recorder.waits import HELD, NO_PRIMITIVES, SIZEOF
from dasklab.records.recorder.worker import CANCELLED_ATTEMPT, RESCHEDULED_ATTEMPT

WITHOUT_RESULT = (UNFINISHED, LOST_ATTEMPT, CANCELLED_ATTEMPT, RESCHEDULED_ATTEMPT, "error")
"""Statuses of attempts that made no result. Dask does not meter them; the recorder meters their threads."""


def gather_evidence(
    tables: Mapping[str, pd.DataFrame],
    tasks: pd.DataFrame,
    keys: pd.Index[str],
    nodes: Mapping[str, int],
    prefixes: Sequence[str],
    start: float,
    stop: float,
) -> Evidence:
    """Collect the evidence of a repeat.

    Args:
        tables: rows of the repeat, on one clock.
        tasks: those that the repeat keeps, in its order.
        keys: the repeat's keys, by code.
        nodes: codes of processes by name.
        prefixes: for each key what is computed.
        start, stop: when the repeat began and ended.
    """
    waits, worker_stays = tables["waits"], stays(tables["workers"], start, stop)
    row = _waiting_task(waits, tasks, keys)
    locks = (row != NONE) & ~waits.kind.isin(NO_PRIMITIVES).to_numpy(bool)
    nested, measuring = ((row != NONE) & (waits.kind == kind).to_numpy(bool) for kind in (OF_CLIENT, SIZEOF))
    starts, stops = floats(waits.start_s), floats(waits.stop_s)
    seceded = floats(tasks.seceded_s)
    left_thread = np.flatnonzero(~np.isnan(seceded))
    wait_sets = (
        IntervalSets(row[locks], starts[locks], stops[locks]),
        _holding(waits, row),
        IntervalSets(
            np.concatenate([row[nested], left_thread]),
            np.concatenate([starts[nested], seceded[left_thread]]),
            np.concatenate([stops[nested], floats(tasks.stop_s)[left_thread]]),
        ),
        IntervalSets(row[measuring], starts[measuring], stops[measuring]),
    )
    cpu = _cpu(tables["cpu"], tables["machines"], nodes)
    in_order = tables["events"].sort_values("time_s", kind="stable")
    return Evidence(
        locks=wait_sets[0],
        holding=wait_sets[1],
        nested=wait_sets[2],
        measuring=wait_sets[3],
        collections=_by_node(tables["pauses"], nodes),
        paused=_paused(tables["events"], nodes, worker_stays, stop),
        away=worker_stays.away(nodes, deaths_of(in_order, tables["workers"]), stop),
        no_worker=worker_stays.without_any(start, stop),
        actors=_of_all(tables["actor_calls"]),
        cpu=cpu,
        shares=idle_shares(
            _spans(tasks, keys, nodes, prefixes, wait_sets),
            _metered_alone(tasks, _metered(tables["metrics"], tasks, keys, prefixes)),
            cpu,
            _by_node(tables["busy"], nodes),
            _by_node(tables["busy"].assign(stop_s=tables["busy"].start_s + tables["busy"].late_s), nodes),
        ),
        stacks=_stacks(tables["stacks"], nodes),
        again=_again(tables["events"], tasks, keys),
    )


def _waiting_task(waits: pd.DataFrame, tasks: pd.DataFrame, keys: pd.Index[str]) -> Codes:
    """Return for each wait the row of the task: the last one of that key that had started by the wait's end.

    A task's start by its worker's clock may lie a little after the wait that it began with.
    """
    key, wait_key = positions(keys, tasks.key), positions(keys, waits.key)
    started = last_before(key, floats(tasks.start_s), wait_key, floats(waits.stop_s))
    return np.where(wait_key == NONE, NONE, started)


def _holding(waits: pd.DataFrame, row: Codes) -> IntervalSets:
    """Return when tasks held a lock while others waited for it, most of the time at least."""
    name, _ = pd.factorize(waits["name"])
    start, stop = floats(waits.start_s), floats(waits.stop_s)
    waiting = ~waits.kind.isin(NO_PRIMITIVES).to_numpy(bool)
    waits_for = IntervalSets(name[waiting], start[waiting], stop[waiting])
    contended = waits_for.within(name, start, stop) > (stop - start) / 2
    holds = (waits.kind == HELD).to_numpy(bool) & contended & (row != NONE)
    return IntervalSets(row[holds], start[holds], stop[holds])


def _by_node(rows: pd.DataFrame, nodes: Mapping[str, int]) -> IntervalSets:
    rows = rows[rows.node.isin(nodes)]
    return IntervalSets(np.asarray(rows.node.map(nodes), np.int64), floats(rows.start_s), floats(rows.stop_s))


def _of_all(rows: pd.DataFrame) -> IntervalSets:
    return IntervalSets(np.zeros(len(rows), np.int64), floats(rows.start_s), floats(rows.stop_s))


def _paused(events: pd.DataFrame, nodes: Mapping[str, int], worker_stays: Stays, stop: float) -> IntervalSets:
    """Return when workers were paused: from the change to that status until the next one, or their end."""
    changes = events[(events.kind == "worker-status-change") & events.subject.isin(nodes)]
    changes = changes.assign(
        until=changes.groupby("subject").time_s.shift(-1).fillna(stop),
        status=[json.loads(text).get("status") for text in changes.detail],
    )
    paused = changes[changes.status == "paused"]
    start, until = floats(paused.time_s), floats(paused.until).copy()
    for name, left in zip(worker_stays.name, worker_stays.left, strict=True):
        ends_here = (paused.subject == name).to_numpy(bool) & (start < left) & (left < until)
        until[ends_here] = left
    return IntervalSets(np.asarray(paused.subject.map(nodes), np.int64), start, until)


def _cpu(samples: pd.DataFrame, machines: pd.DataFrame, nodes: Mapping[str, int]) -> dict[int, CpuUse]:
    """Return how each process used CPUs; one that was started again under the same name goes on counting."""
    if not samples.waiting_s.any():  # no process ever waited: earlier recorders stored an unknown wait as 0
        samples = samples.assign(waiting_s=np.nan, loop_waiting_s=np.nan)
    machine_of = {row["node"]: (str(row["machine"]), int(row["cpus"])) for row in machines.to_dict("records")}
    return {
        nodes[str(name)]: CpuUse(
            floats(rows.time_s),
            _rising(rows.cpu_s),
            _rising(rows.waiting_s - rows.loop_waiting_s),
            _rising(rows.loop_waiting_s),
            _rising(rows.loop_cpu_s),
            _rising(rows.held_s),
            _between_looks(floats(rows.time_s), floats(rows.machine_s)),
            *machine_of.get(name, ()),
        )
        for name, rows in samples.sort_values("time_s").groupby("node")
        if name in nodes
    }


def _rising(total: pd.Series[float]) -> Floats:
    return np.cumsum(np.append(0.0, np.maximum(0.0, np.diff(floats(total)))))[: len(total)]


def _between_looks(time: Floats, total: Floats) -> Floats:
    """Return a counter at all samples, interpolated; NaN where fewer than two of them looked at it."""
    looked = ~np.isnan(total)
    return np.interp(time, time[looked], total[looked]) if looked.sum() > 1 else np.full(len(time), np.nan)


def _spans(
    tasks: pd.DataFrame,
    keys: pd.Index[str],
    nodes: Mapping[str, int],
    prefixes: Sequence[str],
    wait_sets: Sequence[IntervalSets],
) -> Spans:
    kinds, _ = pd.factorize(np.array(prefixes, object))
    start, stop, rows = floats(tasks.start_s), floats(tasks.stop_s), np.arange(len(tasks))
    explained = [waits.within(rows, start, stop) for waits in wait_sets]
    return Spans(
        worker=np.asarray(tasks.worker.map(nodes), np.int64),
        kind=kinds.astype(np.int64)[positions(keys, tasks.key)],
        start=start,
        stop=stop,
        explained_s=sum(explained, np.zeros(len(tasks))),
        cpu_s=floats(tasks.cpu_s),
        waited_s=floats(tasks.cpu_waiting_s),
        turns=floats(tasks.cpu_turns),
    )


def _metered(
    metrics: pd.DataFrame, tasks: pd.DataFrame, keys: pd.Index[str], prefixes: Sequence[str]
) -> Floats:
    """Return for each task which share of the time of its kind on its worker no CPU was used.

    Of a worker that was not asked in the end, or died, the scheduler knows what it reported before, as a sum
    over workers. NaN where nobody metered that kind of task; 0 where nothing was metered at all, though tasks
    ended.
    """
    parts = metrics.metric.str.split("/")
    of_tasks = (parts.str[0] == "execute") & parts.str[-2].isin(("thread-cpu", "thread-noncpu"))
    rows, parts = metrics[of_tasks], parts[of_tasks]
    if not len(rows):
        return np.where(tasks.status.isin(WITHOUT_RESULT), np.nan, 0.0)
    of_scheduler = (rows.node == "scheduler").tolist()  # whose labels have no span
    table = pd.DataFrame(
        {
            "worker": rows.node.to_numpy(object),
            "prefix": [
                "/".join(labels[1 if is_sum else 2 : -2])
                for labels, is_sum in zip(parts, of_scheduler, strict=True)
            ],
            "activity": parts.str[-2].to_numpy(object),
            "value": floats(rows.value),
        }
    )
    totals = table.pivot_table("value", ["worker", "prefix"], "activity", "sum", fill_value=0.0)
    totals = totals.reindex(columns=["thread-cpu", "thread-noncpu"], fill_value=0.0)
    share = totals["thread-noncpu"] / totals.sum(axis=1).clip(lower=1e-9)
    own = np.array(prefixes, object)[positions(keys, tasks.key)] if len(tasks) else np.zeros(0, object)
    of_worker, of_all = (
        floats(share.reindex(pd.MultiIndex.from_arrays([nodes, own])))
        for nodes in (tasks.worker.to_numpy(object), np.full(len(own), "scheduler", object))
    )
    return np.where(np.isnan(of_worker), of_all, of_worker)


def _metered_alone(tasks: pd.DataFrame, shares: Floats) -> Floats:
    """Return the shares of ``_metered``, but of each attempt that Dask does not meter what its thread had."""
    seconds = floats(tasks.stop_s) - floats(tasks.start_s)
    own = 1 - np.clip(floats(tasks.cpu_s) / np.maximum(seconds, 1e-9), 0.0, 1.0)
    return np.where(tasks.status.isin(WITHOUT_RESULT) & ~np.isnan(own), own, shares)


def _stacks(rows: pd.DataFrame, nodes: Mapping[str, int]) -> list[StackSample]:
    return [
        StackSample(
            nodes[row["node"]], float(row["time_s"]), float(row["seconds"]), row["reason"], row["key"],
            row["activity"], row["name"], tuple(row["stack"]),
        )
        for row in rows[rows.node.isin(nodes)].to_dict("records")
    ]  # fmt: skip


def _again(events: pd.DataFrame, tasks: pd.DataFrame, keys: pd.Index[str]) -> Codes:
    """Return the rows of tasks that were computed after their result had been lost."""
    lost = events[(events.kind == "lost") & ~events.detail.isin(NOT_LOST)]
    if not len(lost):
        return np.zeros(0, np.int64)
    when = last_before(
        positions(keys, lost.subject),
        floats(lost.time_s),
        positions(keys, tasks.key),
        floats(tasks.start_s),
    )
    return np.flatnonzero((when != NONE) & tasks.key.isin(lost.subject).to_numpy(bool))
