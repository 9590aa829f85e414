"""What a record knows beside times: settings, primitives, network interfaces, retransmissions."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from dasklab.breakdown.answers.facts.capacity import capacity
from dasklab.breakdown.answers.facts.facts import (
    SUMMED,
    Facts,
    PrimitiveUse,
    SlowerInterface,
    facts,
    running_while_blocked,
)
from dasklab.records.recorder.process import RETRANSMITTED
from dasklab.records.schema import TABLES

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task


def of(**rows: list[Row]) -> Facts:
    """Return the facts of repeat 1, between two in which the same happened."""
    for name in SUMMED:
        rows[name] = [row | {"repeat": n} for n in range(3) for row in rows.get(name, [])]
    return facts({name: pd.DataFrame(rows.get(name, []), columns=list(TABLES[name])) for name in TABLES}, 1)


def wait(kind: str, key: str, seconds: float, name: str = "a") -> Row:
    return {
        "worker": "worker-1",
        "start_s": 1.0,
        "stop_s": 1.0 + seconds,
        "key": key,
        "kind": kind,
        "name": name,
    }


def test_a_primitive_is_named_with_the_kind_of_task_that_held_it_longest() -> None:
    waits = [
        wait("Lock", "load-1", 2.0), wait("Lock", "load-2", 3.0), wait("held", "store-1", 4.0),
        wait("held", "store-2", 2.0), wait("held", "load-3", 5.0), wait("Queue", "take-1", 1.0, "b"),
        wait("Client", "outer-1", 9.0, ""),
    ]  # fmt: skip
    assert of(waits=waits).primitives == [
        PrimitiveUse("Lock", "a", 5.0, "store"),
        PrimitiveUse("Queue", "b", 1.0, ""),
    ]


def test_settings_are_the_scheduler_s() -> None:
    setting = "scheduler.worker-saturation"
    rows = [
        {"node": "worker-1", "setting": setting, "value": "1.1"},
        {"node": "scheduler", "setting": setting, "value": '"inf"'},
    ]
    known = of(config=rows)
    assert known.setting(setting) == "inf" and known.setting("other") == ""


def test_segments_and_objects_are_added_up() -> None:
    metrics = [{"node": "worker-1", "metric": RETRANSMITTED, "value": value} for value in (3.0, 4.0)]
    calls = [{"kind": kind, "keys": 5} for kind in ("scatter", "scatter", "gather")]
    known = of(metrics=[*metrics, {"node": "worker-1", "metric": "other", "value": 1.0}], calls=calls)
    assert known.retransmitted == {"worker-1": 7.0} and known.scattered == 10


INTERFACES = [
    {"node": "worker-1", "name": "eth0", "address": "10.0.0.1", "mbit": 1000.0},
    {"node": "worker-1", "name": "ib0", "address": "10.1.0.1", "mbit": 100_000.0},
]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://10.0.0.1:4000", SlowerInterface("worker-1", "eth0", 1000.0, "ib0", 100_000.0)),
        ("tcp://10.1.0.1:4000", None),
        ("tcp://127.0.0.1:4000", None),
    ],
)
def test_a_faster_interface_is_found(address: str, expected: SlowerInterface | None) -> None:
    workers = [{"worker": "worker-1", "address": address, "threads": 1}]
    assert of(interfaces=INTERFACES, workers=workers).slower_interface == expected


def test_what_runs_while_a_loop_is_blocked_is_named_only_if_it_ran_most_of_that_time() -> None:
    busy = {"worker-1": [(1.0, 5.0), (8.0, 8.05)]}
    rows = [task("parse-1", "worker-1", 1, 1.0, 3.5), task("parse-2", "worker-2", 1, 1.0, 5.0)]
    assert running_while_blocked(make_repeat(rows, busy=busy), "worker-1", 0.1) == (4.0, "parse")
    short = [task("parse-1", "worker-1", 1, 1.0, 2.5)]
    assert running_while_blocked(make_repeat(short, busy=busy), "worker-1", 0.1) == (4.0, "")
    assert running_while_blocked(make_repeat(busy=busy), "worker-1", 0.1) == (4.0, "")


@pytest.mark.parametrize(("status", "deaths"), [("closing", 0), ("running", 1)])
def test_a_worker_that_said_that_it_closes_did_not_die(status: str, deaths: int) -> None:
    worker = {"worker": "worker-1", "address": "tcp://a", "threads": 1}
    change = {"subject": "worker-1", "detail": json.dumps({"status": status})}
    removal = {"subject": "all", "detail": json.dumps({"worker": "tcp://a", "expected": False})}
    events = [
        {"time_s": 1.0, "kind": "worker-status-change", **change},
        {"time_s": 1.1, "kind": "remove-worker", **removal},
    ]
    assert len(of(workers=[worker], events=events).failures.deaths) == deaths


def test_a_worker_that_leaves_at_once_was_hardly_there() -> None:
    workers = [{"worker": "worker-1", "threads": 1}, {"worker": "worker-2", "threads": 1, "left_s": 0.02}]
    repeat = make_repeat(threads={"worker-1": 1, "worker-2": 1}, tables={"workers": workers})
    assert [stretch.workers for stretch in capacity(repeat, 0.2)] == [1]
