"""From records to tables: what is joined with what, where a key comes twice or a peer was busy."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dasklab.model.files import CaptureRecords, Records, Sample
from dasklab.paths import SHARE
from dasklab.records import promises
from dasklab.records.earlier_trials import frames, other_form, tables
from dasklab.records.recorder.worker import stacks
from dasklab.records.speedscope import speedscope
from dasklab.results.run import Trial

ONE, TWO = "tcp://10.0.0.1:1", "tcp://10.0.0.2:2"
SAMPLE = Sample(repeat=1, warmup=False, start=0.0, stop=20.0, duration_s=20.0, answer=1.0, ok=True)


def common() -> dict[str, Any]:
    about = {"form": 1, "now": 20.0, "loop": "asyncio", "lost": 0, "cpu": [1.0, 0.5]}
    return about | {"config": {"a": {"b": 1}}, "spells": [], "sent": [], "metrics": []}


def worker(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        name: [] for name in ("arrived", "done", "states", "delays", "fetches", "served")
    }
    return common() | empty | more


def taken() -> dict[str, Any]:
    """``y`` went to worker-1, was stolen by worker-2 and computed there, after ``x`` on worker-1."""
    scheduler = common() | {
        "workers": [[ONE, "worker-1", 2], [TWO, "worker-2", 1]],
        "tasks": [
            ["x", ONE, 7, 8, "int", "OK", [["compute", 2.0, 3.0]]],
            ["y", TWO, 9, 8, "int", "OK", [["disk-read", 5.0, 5.5], ["compute", 6.0, 7.0]]],
        ],
        "transitions": [
            ["x", "released", "waiting", "update-graph-1.0", 1.0],
            ["x", "waiting", "processing", "update-graph-1.0", 1.1],
            ["x", "processing", "memory", "task-finished-3.1", 3.4],
            ["y", "waiting", "processing", "task-finished-3.1", 3.5],
            ["y", "waiting", "processing", "steal-3.9", 4.0],
            ["y", "processing", "memory", "task-finished-7.1", 7.5],
        ],
        "sent": [[1.2, ONE, "x", "compute-task", 0.0], [3.6, ONE, "y", "compute-task", 1.205],
                 [4.1, TWO, "y", "compute-task", 0.0]],
        "load": [[2.0, ONE, 1, 0.5, 0]],
        "steals": [[4.0, "request", "y", ONE, TWO]],
        "bandwidth": 1e8,
        "bandwidth_workers": [[TWO, ONE, 5e7]],
    }  # fmt: skip
    one = worker(
        arrived=[["x", 1.3, []], ["y", 3.7, [["x", 8, [ONE]]]]],
        states=[["x", "ready", 1.4], ["x", "executing", 1.5], ["y", "ready", 3.8]],
        done=[["x", 3.1, "task-finished-3.1"]],
        sent=[[3.2, "", "x", "task-finished", 3.15]],
        served=[[4.4, 4.5, TWO, ["x"], 0.0], [4.8, 5.0, TWO, ["x"], 0.01]],
    )
    two = worker(
        arrived=[["y", 4.2, [["x", 8, [ONE]]]]],
        states=[["y", "ready", 5.6], ["y", "executing", 5.7]],
        done=[["y", 7.1, "task-finished-7.1"]],
        sent=[[7.2, "", "y", "task-finished", 0.0]],
        fetches=[[4.3, 4.6, ONE, ["x"], "busy", 0.0], [4.7, 5.4, ONE, ["x"], "OK", 0.02]],
    )
    times = {"asked": 19.9, "answered": 20.1, "graphs": [[0.5, 0.6, 100]]}
    return times | {"scheduler": scheduler, "workers": {ONE: one, TWO: two}}


@pytest.fixture
def found() -> dict[str, list[dict[str, Any]]]:
    return tables([None, taken()], [SAMPLE.model_copy(update={"repeat": 0}), SAMPLE])


def test_a_stolen_task_has_the_stages_of_where_it_ran(found: dict[str, list[dict[str, Any]]]) -> None:
    first, second = found["tasks"]
    assert second["worker"] == "worker-2"
    assert (second["decided_s"], second["sent_s"], second["arrived_s"]) == (4.0, 4.1, 4.2)
    assert (second["ready_s"], second["executing_s"], second["done_s"]) == (5.6, 5.7, 7.1)
    assert (second["trigger"], second["stimulus"], second["disk_s"]) == ("", "steal", 0.5)
    assert (first["trigger"], first["stimulus"]) == ("", "update-graph")
    assert (first["handled_s"], first["report_due_s"]) == (3.4, 3.15)


def test_the_trigger_is_whose_end_made_the_scheduler_choose() -> None:
    records = taken()
    del records["scheduler"]["transitions"][4]
    assert tables([records], [SAMPLE])["tasks"][1]["trigger"] == "x"


def test_fetches_find_their_answers_in_order(found: dict[str, list[dict[str, Any]]]) -> None:
    busy, brought = found["fetches"]
    assert (busy["status"], busy["serve_start_s"]) == ("busy", 4.4)
    assert (brought["sender"], brought["serve_start_s"], brought["serialise_s"]) == ("worker-1", 4.8, 0.01)


def test_addresses_have_names(found: dict[str, list[dict[str, Any]]]) -> None:
    assert found["steals"][0] | {"repeat": 1} == found["steals"][0]
    assert (found["steals"][0]["victim"], found["steals"][0]["thief"]) == ("worker-1", "worker-2")
    assert [row["bytes_per_s"] for row in found["bandwidths"]] == [1e8, 5e7]
    assert found["needs"][0]["holders"] == "worker-1"
    assert {row["repeat"] for name, rows in found.items() for row in rows if name != "config"} == {1}


def test_what_the_preload_did_not_keep_follows_from_other_rows(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    cpu = [row for row in found["cpu"] if row["node"] == "worker-1"]
    assert [row["time_s"] for row in cpu] == [0.0, 20.0]
    assert (cpu[1]["cpu_s"], cpu[1]["waiting_s"], cpu[1]["loop_waiting_s"]) == (1.0, 0.5, 0.25)
    (call,) = found["calls"]
    assert (call["kind"], call["start_s"], call["stop_s"]) == ("sync", 0.6, 20.0)


def test_a_task_is_queued_until_it_is_decided() -> None:
    records = taken()
    records["scheduler"]["transitions"].insert(1, ["x", "waiting", "queued", "update-graph-1.0", 1.05])
    assert tables([records], [SAMPLE])["tasks"][0]["queued_s"] == 1.05


def test_stored_trials_of_both_earlier_formats_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(SHARE / "docs" / "gallery" / "baseline.zip") as archive:
        archive.extractall(tmp_path)
    (records,) = tmp_path.rglob("records.json")
    trial = records.parent
    current = {captured: frames(Trial(trial), captured) for captured in (False, True)}
    assert all(len(tables["tasks"]) and len(tables["cpu"]) for tables in current.values())
    for own in current.values():
        promises.validate(own)
    for kind in (Records, CaptureRecords):  # format 2 has other names
        document = json.loads((trial / kind.FILE).read_text())
        (trial / kind.FILE).unlink()
        (trial / kind.PREVIOUS_FILE).write_text(json.dumps(document | {"schema": 2}))
    for captured, tables_of in current.items():
        again = frames(Trial(trial), captured)
        assert all(again[name].equals(table) for name, table in tables_of.items())


def test_another_version_of_the_preload_is_noticed() -> None:
    assert not other_form([None, taken()])
    records = taken()
    records["scheduler"]["form"] = 0
    assert other_form([records])


def test_a_profile_is_a_file_for_speedscope() -> None:
    def node(name: str, line: int, count: int, *children: dict[str, Any]) -> dict[str, Any]:
        about = {"name": name, "filename": "/x/y z.py", "line_number": line}
        return {"count": count, "description": about, "children": dict(enumerate(children))}

    tree = node("root", 0, 10, node("run", 5, 10, node("add", 9, 4), node("<lambda> (1)", 7, 3)))
    sampled = list(stacks(tree, []))
    run, add, small = "run (/x/y z.py:5)", "add (/x/y z.py:9)", "<lambda> (1) (/x/y z.py:7)"
    assert sampled == [([run, add], 4), ([run, small], 3), ([run], 3)]
    rows = [{"worker": "worker-1", "stack": stack, "seconds": n / 100} for stack, n in sampled]
    said = speedscope(pd.DataFrame([*rows, {"worker": "worker-2", "stack": [run], "seconds": 1.0}]), "trial")
    assert said["shared"]["frames"] == [
        {"name": "run", "file": "/x/y z.py", "line": 5},
        {"name": "add", "file": "/x/y z.py", "line": 9},
        {"name": "<lambda> (1)", "file": "/x/y z.py", "line": 7},
    ]
    first, second = said["profiles"]
    assert (first["samples"], first["weights"]) == ([[0, 1], [0, 2], [0]], [0.04, 0.03, 0.03])
    assert first["endValue"] == pytest.approx(0.1)
    assert (second["name"], second["samples"], second["unit"]) == ("worker-2", [[0]], "seconds")
