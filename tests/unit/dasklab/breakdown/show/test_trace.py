"""The trace shows every interval once, and keeps to its format."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dasklab.breakdown.model.run import Run
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.trace import write

from tests.unit.dasklab.breakdown.timelines import by_hand


def trace(run: Run, folder: Path) -> list[dict[str, Any]]:
    write(Explained(folder, False, {}, [run], {}, pd.DataFrame()), folder / "trace.json")
    events: list[dict[str, Any]] = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return events


def test_a_trace_has_every_interval_once(tmp_path: Path) -> None:
    events = trace(by_hand(), tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert set(names.values()) == {"critical path", "scheduler", "worker-1", "worker-2"}
    lengths = dict.fromkeys(names.values(), 0.0)
    for event in events:
        if event["ph"] == "X":
            lengths[names[event["pid"]]] += event["dur"]
    assert lengths == pytest.approx({"critical path": 1e7, "scheduler": 0, "worker-1": 1e7, "worker-2": 1e7})
    begins = [event["id"] for event in events if event["ph"] == "b"]
    assert begins == [event["id"] for event in events if event["ph"] == "e"] != []


def overlaps(spans: list[tuple[float, float]]) -> bool:
    """Whether spans of one row overlap by more than a nanosecond."""
    return any(start < stop - 0.001 for (_, stop), (start, _) in pairwise(sorted(spans)))


def broken_rules(events: list[dict[str, Any]]) -> list[str]:
    """What breaks the Trace Event Format, or what Perfetto drops: times below zero, overlapping spans."""
    timed = [event for event in events if event["ph"] != "M"]
    broken = [f"time of {event}" for event in timed if not 0 <= event["ts"] < float("inf")]
    broken += [f"kind of {event}" for event in timed if event["ph"] not in "XCbe"]
    rows = defaultdict(list)
    for event in timed:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    broken += [f"row {row} overlaps" for row, spans in rows.items() if overlaps(spans)]
    ends = {kind: [(e["cat"], e["id"], e["pid"]) for e in timed if e["ph"] == kind] for kind in "be"}
    return broken + [f"{len(ends['b'])} spans begin, others end"] * (sorted(ends["b"]) != sorted(ends["e"]))


def test_a_trace_keeps_to_its_format(tmp_path: Path) -> None:
    events = trace(by_hand(busy={"scheduler": [(-1.0, 1.0)]}), tmp_path)  # busy before the run began
    assert len(events) > 10
    assert broken_rules(events) == []
