"""Build a repeat from the rows of its tables: names become codes, and what belongs together is joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from dask.utils import key_split

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, expand, floats, last_before, pairs, positions
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.lanes import assign_lanes
from dasklab.breakdown.model.repeat import (
    CLIENT,
    SCHEDULER,
    Calls,
    Delivered,
    Fetches,
    Graph,
    Lines,
    Needs,
    Repeat,
    Shards,
    Tasks,
)
from dasklab.breakdown.model.stages import DUE_STAMPS, STAMPS
from dasklab.breakdown.model.step_function import StepFunction
from dasklab.breakdown.prepare.capacity import stays
from dasklab.breakdown.prepare.gather_evidence import WITHOUT_RESULT, gather_evidence
from dasklab.records.assemble import UNFINISHED, texts
from dasklab.records.recorder.layout import KEY_SEPARATOR
from dasklab.records.recorder.scheduler import LOST_ATTEMPT
from dasklab.records.user_lines import BUILDS, COMPUTES, WAITS

STAMP_ROUNDING_S = 1e-6
LOOPBACK = r"^(?:inproc://|\w+://(?:127\.|localhost:|\[::1\]))"  # addresses within a machine
STEALING_S = 0.2  # Dask looks for tasks to steal every 0.1 s: an earlier end is not the reason
UNCERTAIN_END_S = 0.05  # of an attempt that ended with its worker: the scheduler learns of it later
GRAPH_COLUMNS = ("sent", "received", "materialise", "order", "state")


def build_repeat(tables: Mapping[str, pd.DataFrame]) -> Repeat:
    """Build a repeat.

    Args:
        tables: the repeat's rows of ``records.schema.TABLES``, with all times on one clock.
    """
    row_of_repeat = tables["repeats"].iloc[0]
    start, stop = float(row_of_repeat.start_s), float(row_of_repeat.stop_s)
    tasks, needs, fetches = _with_ends(tables["tasks"], stop), tables["needs"], tables["fetches"]
    tasks = _with_steals(tasks, tables["steals"])
    tasks = tasks[(tasks.start_s < stop) & (tasks.stop_s > start)].sort_values("start_s", kind="stable")
    threads = _threads(tables["workers"], tasks)
    worker_stays = stays(tables["workers"], start, stop)
    nodes = {name: code for code, name in enumerate((CLIENT, SCHEDULER, *threads))}
    fetches = fetches[fetches.receiver.isin(nodes) & fetches.sender.isin(nodes)]
    requested, requests = pd.factorize(fetches["keys"].to_numpy(object))
    counts = np.array([1 + text.count(KEY_SEPARATOR) for text in requests], np.int64)
    names = np.array(KEY_SEPARATOR.join(requests).split(KEY_SEPARATOR) if len(requests) else [], object)
    every = [
        tasks.key.to_numpy(object),
        needs.needed.to_numpy(object),
        names,
    ]
    keys = pd.Index(pd.unique(np.concatenate(every)), dtype=object)
    busy = tables["busy"][tables["busy"].node.isin(nodes)]
    unfinished, queued = _unfinished(tables["tasks"])
    thread = _threads_in_use(tasks, threads)
    tasks = tasks.assign(disk_s=_disk_s(tasks, tables["metrics"]), thread=thread)
    columns = _tasks(tasks, nodes, keys)
    prefixes = [str(key_split(key)) for key in keys]
    return Repeat(
        number=int(row_of_repeat["repeat"]),
        start=start,
        stop=stop,
        threads=threads,
        keys=[str(key) for key in keys],
        tasks=columns,
        needs=_needs(needs, columns, nodes, keys),
        fetches=_fetches(fetches, nodes),
        delivered=_delivered(requested, counts, positions(keys, names)),
        shards=Shards(*(floats(tables["shards"][name]) for name in ("start_s", "stop_s", "nbytes"))),
        busy=IntervalSets(_codes(busy.node, nodes), floats(busy.start_s), floats(busy.stop_s)),
        unfinished=unfinished,
        queued=queued,
        warmup=bool(row_of_repeat.warmup),
        graphs=[_graph(row) for row in complete_graphs(tables["graphs"]).to_dict("records")],
        calls=_calls(tables["calls"]),
        lines=_lines(tables["lines"]),
        evidence=gather_evidence(tables, tasks, keys, nodes, prefixes, start, stop),
        prefixes=prefixes,
        joined=worker_stays.first_joined(),
        senders=_senders(keys, tables["introduced"]),
        left=worker_stays.last_left(),
        unfinished_of=_unfinished_of(tables["tasks"], tables["introduced"]),
        on_loopback=_on_loopback(tables["workers"]),
    )


def _on_loopback(workers: pd.DataFrame) -> bool:
    """Return whether all workers listen within their machine, or within their process."""
    addresses = texts(workers.address)
    return len(addresses) > 0 and bool(addresses.str.contains(LOOPBACK).all())


def _threads(workers: pd.DataFrame, tasks: pd.DataFrame) -> dict[str, int]:
    """Return the number of threads of each worker; of one that left, those that it used."""
    threads = {str(name): int(count) for name, count in zip(workers.worker, workers.threads, strict=True)}
    used = tasks.groupby("worker").thread.nunique()
    return threads | {str(name): int(count) for name, count in used.items() if name not in threads}


def _with_ends(tasks: pd.DataFrame, stop: float) -> pd.DataFrame:
    """Return the tasks; one that still ran ends with the repeat, and a lost attempt when that was noticed.

    The scheduler alone knows of a lost attempt, so its times are on the scheduler's clock.
    """
    runs = (tasks.status == UNFINISHED) & tasks.start_s.notna() & tasks.stop_s.isna()
    lost = (tasks.status == LOST_ATTEMPT) & tasks.arrived_s.isna()
    shift = (tasks.handled_s - tasks.stop_s).where(lost, 0.0)
    return tasks.assign(start_s=tasks.start_s + shift, stop_s=(tasks.stop_s + shift).mask(runs, stop))


def _with_steals(tasks: pd.DataFrame, steals: pd.DataFrame) -> pd.DataFrame:
    """Return the tasks with a column ``was_moved``; a thief's task is decided when its victim gives it up."""
    confirmed = steals[steals.kind == "confirm"].groupby(["key", "thief"]).time_s.max()
    if not len(confirmed):
        return tasks.assign(was_moved=False)
    given_up = floats(confirmed.reindex(pd.MultiIndex.from_frame(tasks[["key", "worker"]])))
    was_moved = (given_up > tasks.decided_s) & (given_up < tasks.arrived_s)
    return tasks.assign(was_moved=was_moved, decided_s=tasks.decided_s.mask(was_moved, given_up))


def _threads_in_use(tasks: pd.DataFrame, threads: Mapping[str, int]) -> Codes:
    """Return the thread of each task.

    Where tasks of a worker name more threads than it has, each gets a number that was free: when a nanny
    starts a worker again, or a task secedes, new threads take the place of others, and the thread of an
    attempt that ended with its worker is not known. Times that its worker did not tell are less exact.
    """
    thread = tasks.thread.fillna(0).astype(np.int64)
    number = thread.groupby(tasks.worker).nunique()
    result = np.array(thread, np.int64)
    too_many = tasks.worker.isin([worker for worker, used in number.items() if used > threads[str(worker)]])
    rows, unknown = tasks[too_many], ((thread == 0) | tasks.arrived_s.isna())[too_many]
    start = floats(rows.start_s)
    kept_until = np.fmin(floats(rows.stop_s), floats(rows.seceded_s))
    kept_until = np.maximum(start, np.where(unknown, kept_until - UNCERTAIN_END_S, kept_until))
    lane = assign_lanes(pd.factorize(rows.worker)[0].astype(np.int64), start, kept_until)
    result[too_many] = lane + 1
    return result


def _tasks(rows: pd.DataFrame, nodes: Mapping[str, int], keys: pd.Index[str]) -> Tasks:
    key = positions(keys, rows.key)
    stamps = {name: floats(rows[f"{name}_s"]) for name in (*STAMPS, *DUE_STAMPS)}
    handled = np.where(np.isnan(stamps["handled"]), stamps["stop"], stamps["handled"])
    worker, decided = _codes(rows.worker, nodes), stamps["decided"] + STAMP_ROUNDING_S
    trigger = last_before(key, handled, positions(keys, rows.trigger.astype(object)), decided)
    return Tasks(
        key=key,
        worker=worker,
        thread=rows.thread.to_numpy(np.int64),
        stamps=stamps,
        freed=np.maximum(stamps["start"], np.fmin(stamps["stop"], floats(rows.seceded_s))),
        has_result=~rows.status.isin(WITHOUT_RESULT).to_numpy(bool),
        trigger=np.where(rows.was_moved, _triggers_of_steals(worker, handled, decided), trigger),
        disk_s=np.nan_to_num(floats(rows.disk_s)),
        nbytes=np.nan_to_num(floats(rows.nbytes)),
    )


def _triggers_of_steals(worker: Codes, handled: Floats, decided: Floats) -> Codes:
    """Return the task whose end probably made Dask steal: the last one on the thief, or else on any worker.

    ``NONE`` where neither ends shortly before.
    """
    anywhere = np.zeros(len(worker), np.int64)
    last_there, last = (last_before(at, handled, at, decided) for at in (worker, anywhere))
    ends = np.append(handled, -np.inf)
    is_recent = ends[last] > decided - STEALING_S
    return np.where(ends[last_there] > decided - STEALING_S, last_there, np.where(is_recent, last, NONE))


def _disk_s(tasks: pd.DataFrame, metrics: pd.DataFrame) -> Floats:
    """Return the seconds for which tasks waited for a disk: none on workers that spilled no bytes.

    Dask reports as a disk's what it takes to store a result, which calls the user's ``__sizeof__``, too.
    Where it counts no bytes at all, as earlier versions do, its report is all there is.
    """
    activity = metrics.metric.str.split("/")
    is_disk = activity.str[-2].isin(("disk-read", "disk-write")) & (activity.str[0] != "p2p")
    spilled = set(metrics.node[is_disk & (activity.str[-1] == "bytes") & (metrics.value > 0)])
    counted = set(metrics.node[activity.str[-1] == "bytes"])
    none = tasks.worker.isin(counted - spilled).to_numpy(bool)
    return np.where(none, 0.0, floats(tasks.disk_s))


def _needs(rows: pd.DataFrame, tasks: Tasks, nodes: Mapping[str, int], keys: pd.Index[str]) -> Needs:
    """Join needs with the tasks that have them: by key and worker."""
    dependent = positions(keys, rows.key)
    worker = rows.worker.map(nodes).fillna(NONE).to_numpy(np.int64)
    some = (dependent != NONE) & (worker != NONE)
    rows, dependent, worker = rows[some], dependent[some], worker[some]
    row, task = pairs(tasks.key * len(nodes) + tasks.worker, dependent * len(nodes) + worker)
    # a worker does not name itself as a holder of what it has
    holders = rows.holders.where(rows.holders != "", rows.worker).to_numpy(object)
    return Needs(
        task=task,
        key=positions(keys, rows.needed)[row],
        nbytes=np.nan_to_num(floats(rows.nbytes))[row],
        holders=holders[row].tolist(),
    )


def _fetches(rows: pd.DataFrame, nodes: Mapping[str, int]) -> Fetches:
    nothing = np.full(len(rows), np.nan)
    return Fetches(
        receiver=_codes(rows.receiver, nodes),
        sender=_codes(rows.sender, nodes),
        start=floats(rows.start_s),
        stop=floats(rows.stop_s),
        busy=(rows.status == "busy").to_numpy(bool),
        serve_start=floats(rows.serve_start_s),
        serialise_s=np.nan_to_num(floats(rows.serialise_s)),
        deserialise_s=np.nan_to_num(floats(rows.deserialise_s)),
        first_byte=nothing,
        last_byte=nothing,
    )


def _delivered(requested: Codes, counts: Codes, keys: Codes) -> Delivered:
    """Return which fetch was for which key.

    Args:
        requested: for each fetch the number of its request.
        counts: for each request the number of its keys.
        keys: those of all requests, one request after the other.
    """
    stops = np.cumsum(counts)
    fetch, position = expand((stops - counts)[requested], stops[requested])
    return Delivered(fetch, keys[position])


def complete_graphs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return graphs in order of their arrival; one of which only the arrival is known began then."""
    rows = rows.sort_values("received_s", kind="stable")
    return rows.assign(
        is_recorded=rows.begin_s.notna(),
        begin_s=rows.begin_s.fillna(rows.received_s),
        sent_s=rows.sent_s.fillna(rows.received_s),
    )


def _graph(row: Mapping[Any, Any]) -> Graph:
    seconds = {name: float(row[f"{name}_s"]) for name in GRAPH_COLUMNS}
    return Graph(
        start=float(row["begin_s"]),
        tasks=int(row["tasks"]),
        nbytes=int(row["nbytes"]),
        client=row["client"] if isinstance(row["client"], str) else "",
        is_recorded=bool(row["is_recorded"]),
        **seconds,
    )


def _senders(keys: pd.Index[str], introduced: pd.DataFrame) -> list[str]:
    """Return for each key the client whose task it is; empty where unknown."""
    senders = np.full(len(keys) + 1, "", object)  # the last one is of keys that the repeat does not have
    code = positions(keys, introduced.key)
    senders[code[::-1]] = texts(introduced.client).to_numpy(object)[::-1]  # the first row of a key counts
    return [str(sender) for sender in senders[:-1]]


def _calls(rows: pd.DataFrame) -> Calls:
    return Calls(rows.kind.tolist(), floats(rows.start_s), floats(rows.stop_s), floats(rows.missing))


def _lines(rows: pd.DataFrame) -> Lines:
    names = list(zip(texts(rows.file), rows.line.fillna(0).astype(int), texts(rows.code), strict=True))
    code, different = pd.factorize(pd.Series(names, dtype=object))
    waits, local, builds = ((rows.waits == value).to_numpy(bool) for value in (WAITS, COMPUTES, BUILDS))
    return Lines(floats(rows.start_s), floats(rows.stop_s), waits, local, builds, code, list(different))


def _unfinished(tasks: pd.DataFrame) -> tuple[StepFunction, StepFunction]:
    """Return how many tasks the scheduler knew that were not done, and how many it kept back, over time."""
    waiting, queued, decided, handled = (
        floats(tasks[name]) for name in ("waiting_s", "queued_s", "decided_s", "handled_s")
    )
    return _between(np.fmin(waiting, decided), handled), _between(queued, decided)


def _unfinished_of(tasks: pd.DataFrame, introduced: pd.DataFrame) -> dict[str, StepFunction]:
    """Return for each client how many of its tasks the scheduler knew that were not done, over time."""
    client = texts(tasks.key.map(introduced.drop_duplicates("key").set_index("key").client))
    return {str(name): _unfinished(rows)[0] for name, rows in tasks.groupby(client.to_numpy(object))}


def _between(start: Floats, stop: Floats) -> StepFunction:
    """Return how many of some stretches of time contain each moment; one without an end goes on."""
    real = ~np.isnan(start)
    start, stop = start[real], stop[real]
    stop = stop[~np.isnan(stop)]
    return StepFunction.from_increments(
        np.concatenate([start, stop]), np.repeat([1, -1], [len(start), len(stop)])
    )


def _codes(names: pd.Series[str], nodes: Mapping[str, int]) -> Codes:
    return np.asarray(names.map(nodes), np.int64)
