"""From the tables of processes to those of a record: what is joined with what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dasklab.breakdown.prepare.columns import build_repeat, complete_graphs
from dasklab.records.assemble import tables, worker_names
from dasklab.records.document import Record
from dasklab.records.recorder.layout import CLIENT, SCHEDULER, WORKER, columns_of
from dasklab.records.schema import TABLES

ONE, TWO, GONE = "tcp://10.0.0.1:1", "tcp://10.0.0.2:2", "tcp://10.0.0.3:3"
LAYOUTS = {"client": CLIENT, "scheduler": SCHEDULER}
DEFAULTS: dict[str, Any] = {"t": math.nan, "f": math.nan, "i": 0, "s": ""}


def process(layout: dict[str, str], **rows: list[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """Tables of a process; what a row does not name is missing."""
    frames = {}
    for name, some in rows.items():
        kinds = {column.name: column.kind for column in columns_of(layout[name])}
        blank = {column: DEFAULTS[kind] for column, kind in kinds.items()}
        frames[name] = pd.DataFrame([blank | row for row in some])
    return frames


@pytest.fixture(scope="module")
def record() -> dict[str, pd.DataFrame]:
    """``x`` runs twice on the first worker; ``y`` needs it, on the second; ``z`` ran on one that died."""
    scheduler = process(
        SCHEDULER,
        workers=[
            {"time": 0.1, "worker": ONE, "name": "0", "threads": 1, "kind": "present"},
            {"time": 0.1, "worker": TWO, "name": TWO, "threads": 2, "kind": "joined"},
            {"time": 0.2, "worker": GONE, "name": "gone", "threads": 1, "kind": "joined"},
            {"time": 8.0, "worker": GONE, "kind": "left"},
        ],
        tasks=[
            {"key": "x", "worker": ONE, "waiting": 1.0, "decided": 1.1, "handled": 3.0, "status": "memory",
             "graph": 1, "span": "load"},
            {"key": "z", "worker": GONE, "waiting": 1.0, "decided": 1.1, "handled": 3.1, "start": 1.5,
             "stop": 2.5, "status": "memory"},
            {"key": "x", "worker": ONE, "waiting": 4.0, "decided": 4.1, "handled": 6.0, "status": "memory",
             "graph": 2},
            {"key": "y", "worker": TWO, "waiting": 1.0, "queued": 1.0, "decided": 6.1, "handled": 8.0,
             "trigger": "x", "stimulus": "task-finished", "status": "erred"},
        ],
        graphs=[{"number": 1, "received": 0.9, "client": "me", "tasks": 3},
                {"number": 2, "received": 3.5, "client": "other", "tasks": 1}],
        results=[{"time": 8.0, "key": "y"}],
    )  # fmt: skip
    one = process(
        WORKER,
        tasks=[{"key": "x", "arrived": 4.2, "start": 5.0, "stop": 5.5, "done": 5.6, "status": "memory"},
               {"key": "x", "arrived": 1.2, "start": 2.0, "stop": 2.5, "done": 2.6, "status": "memory"}],
        served=[{"start": 6.4, "stop": 6.5, "who": TWO, "keys": "w\x1fx", "serialise": 0.01}],
        about=[{"name": "loop", "value": "asyncio"}],
    )  # fmt: skip
    two = process(
        WORKER,
        tasks=[{"key": "y", "arrived": 6.2, "start": 7.0, "stop": 7.5, "done": 7.6, "status": "error"}],
        needs=[{"key": "y", "needed": "x", "nbytes": 8.0, "holders": f"{ONE},{TWO}"}],
        fetches=[{"start": 6.3, "stop": 6.9, "peer": ONE, "keys": "w\x1fx", "status": "OK"}],
        delays=[{"time": 5.0, "delay": 0.25}],
    )
    client = process(
        CLIENT,
        graphs=[
            {"begin": 0.5, "sent": 0.6, "nbytes": 100.0, "keys": 1, "file": "a.py", "line": 3, "code": "go"}
        ],
        clock=[{"asked": 0.0, "scheduler": 0.1, "answered": 0.2}],
    )
    processes = {"scheduler": scheduler, "client": client, ONE: one, TWO: two}
    return tables({None: processes}, Record(3, "me", 0.0, 10.0, lost={}, failures={}))


def test_every_table_has_its_columns(record: dict[str, pd.DataFrame]) -> None:
    assert {name: list(frame) for name, frame in record.items()} == {
        name: list(columns) for name, columns in TABLES.items()
    }


def test_addresses_get_names(record: dict[str, pd.DataFrame]) -> None:
    assert record["workers"].worker.tolist() == ["worker-0", "10.0.0.2:2", "gone"]
    assert record["workers"].left_s.tolist()[2] == 8.0
    assert record["needs"].holders.tolist() == ["worker-0\x1f10.0.0.2:2"]


def test_a_task_has_the_stages_of_the_time_when_it_ran(record: dict[str, pd.DataFrame]) -> None:
    x = record["tasks"][record["tasks"].key == "x"].sort_values("start_s")
    assert x.decided_s.tolist() == [1.1, 4.1]
    assert x.start_s.tolist() == [2.0, 5.0]
    assert x.handled_s.tolist() == [3.0, 6.0]


def test_of_a_worker_that_died_the_scheduler_knows_when_a_task_ran(record: dict[str, pd.DataFrame]) -> None:
    (z,) = record["tasks"][record["tasks"].key == "z"].to_dict("records")
    assert (z["worker"], z["start_s"], z["stop_s"], z["status"]) == ("gone", 1.5, 2.5, "OK")
    assert math.isnan(z["arrived_s"])


def test_attempt_that_failed_has_its_own_stages() -> None:
    """The scheduler says only of the last attempt where it ran."""
    attempts = [(1.1, 2.6, "", "released"), (3.1, 4.6, "", "released"), (5.1, 6.6, ONE, "memory")]
    scheduler = process(
        SCHEDULER,
        workers=[{"time": 0.1, "worker": ONE, "name": "0", "threads": 1, "kind": "present"}],
        tasks=[
            {"key": "x", "worker": worker, "decided": decided, "handled": handled, "status": status}
            for decided, handled, worker, status in attempts
        ],
    )
    one = process(
        WORKER,
        tasks=[
            {
                "key": "x",
                "arrived": at,
                "start": at + 0.1,
                "stop": at + 1.1,
                "done": at + 1.2,
                "status": status,
            }
            for at, status in ((1.2, "error"), (3.2, "error"), (5.2, "memory"))
        ],
    )
    joined = tables({None: {"scheduler": scheduler, ONE: one}}, Record(3, "me", 0.0, 10.0, {}, {}))["tasks"]
    rows = joined.sort_values("start_s")
    assert rows.decided_s.tolist() == [1.1, 3.1, 5.1] and rows.arrived_s.tolist() == [1.2, 3.2, 5.2]
    assert rows.status.tolist() == ["error", "error", "OK"] and set(rows.worker) == {"worker-0"}


def test_fetches_are_joined_with_who_served_them(record: dict[str, pd.DataFrame]) -> None:
    (fetch,) = record["fetches"].to_dict("records")
    assert (fetch["receiver"], fetch["sender"]) == ("10.0.0.2:2", "worker-0")
    assert (fetch["serve_start_s"], fetch["serialise_s"], fetch["keys"]) == (6.4, 0.01, "w\x1fx")


def test_of_graphs_of_other_clients_only_the_arrival_is_known(record: dict[str, pd.DataFrame]) -> None:
    graphs = record["graphs"]
    assert (graphs.begin_s.tolist()[0], graphs.code.tolist()[0]) == (0.5, "go")
    assert math.isnan(graphs.begin_s.tolist()[1])
    assert complete_graphs(graphs).begin_s.tolist() == [0.5, 3.5]


def test_a_key_belongs_to_the_graph_that_introduced_it(record: dict[str, pd.DataFrame]) -> None:
    introduced = record["introduced"].set_index("key")
    assert introduced.graph["x"] == 1 and introduced.span["x"] == "load"


def test_unfinished_tasks_are_counted_from_their_stages(record: dict[str, pd.DataFrame]) -> None:
    run = build_repeat(record)
    assert run.unfinished.at(np.array([0.9, 1.0, 3.05, 3.5, 4.0, 7.0, 8.0])).tolist() == [
        0, 3, 2, 1, 2, 1, 0
    ]  # fmt: skip
    assert run.queued.at(np.array([1.0, 6.2])).tolist() == [1, 0]


def test_names_of_workers() -> None:
    rows = [
        ("tcp://a:1", "tcp://a:1", 1),
        ("tcp://b:2", "3", 2),
        ("tcp://c:3", "gpu", 1),
        ("tcp://d:4", "", 0),
    ]
    workers = pd.DataFrame(rows, columns=["worker", "name", "threads"])
    assert worker_names(workers) == {"tcp://a:1": "a:1", "tcp://b:2": "worker-3", "tcp://c:3": "gpu"}


def test_an_attempt_that_was_called_back_is_not_joined_with_one_that_ran() -> None:
    attempts = [
        {"key": "x", "worker": ONE, "decided": 1.0, "sent": 1.1, "handled": 1.5, "status": "released"},
        {"key": "x", "worker": ONE, "decided": 3.0, "sent": 3.1, "handled": 4.0, "status": "memory"},
    ]
    present = {"time": 0.1, "worker": ONE, "name": "0", "threads": 1, "kind": "present"}
    ran = {"key": "x", "arrived": 3.2, "start": 3.3, "stop": 3.9, "done": 3.9, "status": "memory"}
    processes = {
        "scheduler": process(
            SCHEDULER,
            workers=[present],
            tasks=attempts,
            graphs=[{"number": 1, "received": 0.9, "client": "me"}],
        ),
        "client": process(CLIENT, graphs=[{"begin": 0.5, "sent": 0.6}], clock=[{"asked": 0.0}]),
        ONE: process(WORKER, tasks=[ran]),
    }
    tasks = tables({None: processes}, Record(3, "me", 0.0, 10.0, lost={}, failures={}))["tasks"]
    rows = tasks.sort_values("sent_s")[["sent_s", "arrived_s", "status"]].to_numpy().tolist()
    assert rows[1] == [3.1, 3.2, "OK"]
    assert rows[0][0] == 1.1 and math.isnan(rows[0][1]) and rows[0][2] == "released"


def test_an_attempt_of_a_worker_that_died_is_not_joined_with_one_after_its_restart() -> None:
    """The stamps of the first attempt died with the process; its successor has the same name."""
    attempts = [
        {"key": "x", "worker": ONE, "decided": 1.0, "sent": 1.1, "handled": 1.5, "status": "memory"},
        {"key": "x", "worker": TWO, "decided": 3.0, "sent": 3.1, "handled": 4.0, "status": "memory"},
    ]
    workers = [
        {"time": 0.1, "worker": ONE, "name": "0", "threads": 1, "kind": "present"},
        {"time": 1.6, "worker": ONE, "threads": 0, "kind": "left"},
        {"time": 2.5, "worker": TWO, "name": "0", "threads": 1, "kind": "joined"},
    ]
    ran = {"key": "x", "arrived": 3.2, "start": 3.3, "stop": 3.9, "done": 3.9, "status": "memory"}
    graphs = [{"number": 1, "received": 0.9, "client": "me"}]
    processes = {
        "scheduler": process(SCHEDULER, workers=workers, tasks=attempts, graphs=graphs),
        "client": process(CLIENT, graphs=[{"begin": 0.5, "sent": 0.6}], clock=[{"asked": 0.0}]),
        TWO: process(WORKER, tasks=[ran]),
    }
    tasks = tables({None: processes}, Record(3, "me", 0.0, 10.0, lost={}, failures={}))["tasks"]
    rows = tasks.sort_values("sent_s")[["worker", "sent_s", "arrived_s"]].to_numpy().tolist()
    assert rows[1] == ["worker-0", 3.1, 3.2]
    assert rows[0][:2] == ["worker-0", 1.1] and math.isnan(rows[0][2])
