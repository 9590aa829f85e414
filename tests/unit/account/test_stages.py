"""A task's way in stages, and the trace: on the run made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from lab.account import words
from lab.account.stages import STAGES, stages
from lab.account.trace import write
from lab.account.trial import Explained
from tests.unit.account.test_partition import by_hand


def test_stages_follow_each_other_and_add_up() -> None:
    *parts, whole = STAGES
    assert [last for _, _, last, _ in parts[:-1]] == [first for _, first, _, _ in parts[1:]]
    assert (whole[1], whole[2]) == (parts[0][1], parts[-1][2])
    run = by_hand()
    run.tasks = run.tasks[1:]
    *lengths, together = [middle for _, middle, _, _, _ in stages([run])]
    assert lengths == pytest.approx([500, 300, 3000, 400, 100, 1000, 100, 100, 200])
    assert together == pytest.approx(sum(lengths))


def test_stages_that_nobody_saw_are_left_out() -> None:
    run = by_hand()
    for task in run.tasks:
        task.sent = None
    assert len(list(words.stage_rows([run]))) == len(STAGES) - 2


def test_a_trace_has_every_part_once(tmp_path: Path) -> None:
    found = Explained(tmp_path, False, {}, [by_hand()], {}, pd.DataFrame())
    write(found, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert set(names.values()) == {"critical path", "scheduler", "worker-1", "worker-2"}
    lengths = dict.fromkeys(names.values(), 0.0)
    for event in events:
        if event["ph"] == "X":
            lengths[names[event["pid"]]] += event["dur"]
    assert lengths == pytest.approx({"critical path": 1e7, "scheduler": 0, "worker-1": 1e7, "worker-2": 1e7})
    begun = [event["id"] for event in events if event["ph"] == "b"]
    assert begun == [event["id"] for event in events if event["ph"] == "e"] != []
