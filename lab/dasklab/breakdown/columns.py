"""Build a run from the rows of its tables: names become codes, and what belongs together is joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dasklab.breakdown.busy import BusyIntervals
from dasklab.breakdown.intervals import Codes, Floats
from dasklab.breakdown.matching import last_before, pairs
from dasklab.breakdown.run import (
    CLIENT,
    NONE,
    SCHEDULER,
    Delivered,
    Fetches,
    Graph,
    Needs,
    Run,
    Tasks,
)
from dasklab.breakdown.stages import DUE_STAMPS, STAMPS
from dasklab.breakdown.steps import Steps, steps

OPEN = (
    "waiting",
    "queued",
    "no-worker",
    "processing",
)  # states of a task that the scheduler knows and is not done
ROUNDING_S = 1e-6  # of recorded stamps
GRAPH_COLUMNS = ("begin", "sent", "received", "materialise", "order", "state")


def build_run(tables: Mapping[str, pd.DataFrame]) -> Run:
    """Build a run.

    Args:
        tables: the run's rows of ``record.schema.TABLES``, with all times on one clock.
    """
    about = tables["runs"].iloc[0]
    start, stop = float(about.start_s), float(about.stop_s)
    tasks, needs, fetches = tables["tasks"], tables["needs"], tables["fetches"]
    tasks = tasks[(tasks.start_s < stop) & (tasks.stop_s > start)].sort_values("start_s", kind="stable")
    threads = _threads(tables["workers"], tasks)
    nodes = {name: code for code, name in enumerate((CLIENT, SCHEDULER, *threads))}
    fetches = fetches[fetches.receiver.isin(nodes) & fetches.sender.isin(nodes)]
    keys = pd.Index(pd.unique(np.concatenate([tasks.key, needs.needed, *map(_texts, fetches["keys"])])))
    busy = tables["busy"][tables["busy"].node.isin(nodes)]
    unfinished, queued = _counts(tables["transitions"])
    columns = _tasks(tasks, nodes, keys)
    return Run(
        number=int(about.run),
        start=start,
        stop=stop,
        threads=threads,
        keys=[str(key) for key in keys],
        tasks=columns,
        needs=_needs(needs, columns, nodes, keys),
        fetches=_fetches(fetches, nodes),
        delivered=_delivered(fetches, keys),
        busy=BusyIntervals(_codes(busy.node, nodes), _floats(busy.start_s), _floats(busy.stop_s)),
        unfinished=unfinished,
        queued=queued,
        warmup=bool(about.warmup),
        graphs=[_graph(row) for row in tables["graphs"].to_dict("records")],
    )


def _threads(workers: pd.DataFrame, tasks: pd.DataFrame) -> dict[str, int]:
    """Return the number of threads of each worker; of one that left, those that it used."""
    threads = {str(name): int(count) for name, count in zip(workers.worker, workers.threads, strict=True)}
    used = tasks.groupby("worker").thread.nunique()
    return threads | {str(name): int(count) for name, count in used.items() if name not in threads}


def _tasks(rows: pd.DataFrame, nodes: Mapping[str, int], keys: pd.Index[str]) -> Tasks:
    key = keys.get_indexer(pd.Index(rows.key))
    stamps = {name: _floats(rows[f"{name}_s"]) for name in (*STAMPS, *DUE_STAMPS)}
    handled = np.where(np.isnan(stamps["handled"]), stamps["stop"], stamps["handled"])
    triggers = keys.get_indexer(pd.Index(rows.trigger.astype(object)))
    return Tasks(
        key=key.astype(np.int64),
        worker=_codes(rows.worker, nodes),
        thread=rows.thread.fillna(0).to_numpy(np.int64),
        stamps=stamps,
        trigger=last_before(key, handled, triggers, stamps["decided"] + ROUNDING_S),
        disk_s=np.nan_to_num(_floats(rows.disk_s)),
    )


def _needs(rows: pd.DataFrame, tasks: Tasks, nodes: Mapping[str, int], keys: pd.Index[str]) -> Needs:
    """Join needs with the tasks that have them: by key and worker."""
    dependent = keys.get_indexer(pd.Index(rows.key))
    worker = rows.worker.map(nodes).fillna(NONE).to_numpy(np.int64)
    some = (dependent != NONE) & (worker != NONE)
    rows, dependent, worker = rows[some], dependent[some], worker[some]
    row, task = pairs(tasks.key * len(nodes) + tasks.worker, dependent * len(nodes) + worker)
    holders = rows.holders.to_numpy(object)
    return Needs(
        task=task,
        key=keys.get_indexer(pd.Index(rows.needed)).astype(np.int64)[row],
        nbytes=np.nan_to_num(_floats(rows.nbytes))[row],
        holders=holders[row].tolist(),
    )


def _fetches(rows: pd.DataFrame, nodes: Mapping[str, int]) -> Fetches:
    nothing = np.full(len(rows), np.nan)
    return Fetches(
        receiver=_codes(rows.receiver, nodes),
        sender=_codes(rows.sender, nodes),
        start=_floats(rows.start_s),
        stop=_floats(rows.stop_s),
        busy=(rows.status == "busy").to_numpy(bool),
        serve_start=_floats(rows.serve_start_s),
        serialise_s=np.nan_to_num(_floats(rows.serialise_s)),
        deserialise_s=np.nan_to_num(_floats(rows.deserialise_s)),
        first=nothing,
        last=nothing,
    )


def _delivered(fetches: pd.DataFrame, keys: pd.Index[str]) -> Delivered:
    lists = [_texts(each) for each in fetches["keys"]]
    fetch = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    flat = np.concatenate(lists) if lists else np.zeros(0, object)
    return Delivered(fetch, keys.get_indexer(pd.Index(flat)).astype(np.int64))


def _graph(row: Mapping[Any, Any]) -> Graph:
    seconds = {name: float(row[f"{name}_s"]) for name in GRAPH_COLUMNS}
    return Graph(**seconds, tasks=int(row["tasks"]), nbytes=int(row["nbytes"]))


def _counts(transitions: pd.DataFrame) -> tuple[Steps, Steps]:
    """Return how many tasks the scheduler knew that were not done, and how many it kept back, over time."""
    time, (key, _) = _floats(transitions.time_s), pd.factorize(transitions.key)
    order = np.lexsort((time, key))
    key, time, finish = key[order], time[order], transitions.finish.to_numpy()[order]
    follows = np.append(False, key[1:] == key[:-1]) if len(key) else np.zeros(0, bool)

    def count(states: tuple[str, ...]) -> Steps:
        inside = np.isin(finish, states).astype(np.int64)
        before = np.where(follows, np.append(0, inside[:-1])[: len(inside)], 0)
        return steps(time, inside - before)

    return count(OPEN), count(("queued",))


def _texts(keys: object) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    return np.asarray(keys, object)


def _codes(names: pd.Series[str], nodes: Mapping[str, int]) -> Codes:
    return np.asarray(names.map(nodes), np.int64)


def _floats(column: pd.Series[float]) -> Floats:
    return np.asarray(column, np.float64)
