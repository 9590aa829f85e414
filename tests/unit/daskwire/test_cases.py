"""Captures of real clusters that were reported wrongly once. They are not part of the project."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire import open_capture, rows, summarise
from daskwire.terminal.cli import wire

CASES = Path(__file__).parents[4] / "shared" / "findings" / "cases"
PROBLEMS = {  # file -> its problems in order, each with what their evidence contains
    "silent-linktypes/mpls.pcap": [("undecoded capture", "303 of 331 packets: MPLS 303")],
    "silent-linktypes/ng-unknownif.pcapng": [
        ("undecoded capture", "331 of 331 packets: unknown pcapng interface 331"),
        ("incomplete capture", "the capturing program lost 12 packets"),
    ],
    "wire/02-reset-counts-packets.pcap": [],
    "wire/04-node-option-false-tasks.pcap": [
        ("incomplete capture", "343,230 of 458,642 stream bytes (74.8 %) were acknowledged but not captured"),
        *[("erred tasks", f"{number} tasks ended with an exception") for number in (6, 6, 3)],
    ],
}
pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the captures of real clusters are not here")


def test_every_case_is_tested() -> None:
    assert {str(path.relative_to(CASES)) for path in CASES.glob("*/*.pcap*")} == set(PROBLEMS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_of_a_case(name: str) -> None:
    table = rows(open_capture(CASES / name).table("problems"))
    problems = [(row["problem"], row["what"]) for row in table if row["severity"] == "problem"]
    assert [kind for kind, _ in problems] == [kind for kind, _ in PROBLEMS[name]]
    for (_, what), (_, evidence) in zip(problems, PROBLEMS[name], strict=True):
        assert evidence in what


@pytest.mark.parametrize(("name", "reason", "number"), [
    ("mpls.pcap", "MPLS", 303), ("ng-unknownif.pcapng", "unknown pcapng interface", 331),
])  # fmt: skip
def test_skipped_packets_have_a_reason(name: str, reason: str, number: int) -> None:
    capture = open_capture(CASES / "silent-linktypes" / name)
    assert capture.skipped[reason] == number
    assert len(capture.segments) + sum(capture.skipped.values()) == capture.packets == 331
    output = CliRunner().invoke(wire, [str(CASES / "silent-linktypes" / name)]).stdout
    assert f"331 packets were not decoded: {reason} {number}" in output


def test_reset_is_counted_once_per_connection() -> None:
    capture = open_capture(CASES / "wire" / "02-reset-counts-packets.pcap")
    assert summarise(capture)["network"]["resets"] == 1
    (reset,) = [row for row in rows(capture.table("problems")) if row["problem"] == "mid-stream reset"]
    assert (reset["source"], reset["number"], reset["severity"]) == ("worker-1", 1, "note")


@pytest.mark.parametrize("names", [{}, {"10.77.0.2": "boss"}, {"10.77.0.2": "worker-1"}])
def test_name_of_the_scheduler_makes_no_tasks(names: dict[str, str]) -> None:
    capture = open_capture(CASES / "wire" / "04-node-option-false-tasks.pcap", names=names)
    tasks = capture.table("tasks")
    assert Counter(tasks["worker"]) == {"w1": 6, "w2": 6, "w3": 3}
    assert set(tasks["cluster"]) == {"10.77.0.2:8786"} and set(tasks["outcome"]) == {"erred"}
