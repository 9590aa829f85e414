"""A task's way in stages, and the trace: on the run made by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dasklab.breakdown import wording
from dasklab.breakdown.busy import Spells
from dasklab.breakdown.explain import Explained
from dasklab.breakdown.stages import STAGES, stages
from dasklab.breakdown.trace import write

from tests.unit.dasklab.breakdown.test_partition import by_hand


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
    assert len(list(wording.stage_rows([run]))) == len(STAGES) - 2


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


def overlaps(spans: list[tuple[float, float]]) -> bool:
    """Do spans of one row overlap by more than a nanosecond?"""
    return any(start < stop - 0.001 for (_, stop), (start, _) in pairwise(sorted(spans)))


def broken_rules(events: list[dict[str, Any]]) -> list[str]:
    """What breaks the Trace Event Format, or what Perfetto drops: times below zero, spans that overlap."""
    timed = [event for event in events if event["ph"] != "M"]
    found = [f"time of {event}" for event in timed if not 0 <= event["ts"] < float("inf")]
    found += [f"kind of {event}" for event in timed if event["ph"] not in "XCbe"]
    rows = defaultdict(list)
    for event in timed:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    found += [f"row {row} overlaps" for row, spans in rows.items() if overlaps(spans)]
    ends = {kind: [(e["cat"], e["id"], e["pid"]) for e in timed if e["ph"] == kind] for kind in "be"}
    return found + [f"{len(ends['b'])} begun, others ended"] * (sorted(ends["b"]) != sorted(ends["e"]))


def test_a_trace_keeps_to_its_format(tmp_path: Path) -> None:
    run = by_hand()
    run.busy["scheduler"] = Spells([(run.start - 1, run.start + 1)])  # busy before the run began
    write(Explained(tmp_path, False, {}, [run], {}, pd.DataFrame()), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) > 10
    assert broken_rules(events) == []
