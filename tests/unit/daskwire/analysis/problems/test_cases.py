"""Captures of real clusters whose fault is known, see tests/data/wire/cases/README.md."""

from __future__ import annotations

import pytest
from daskwire import Capture, open_capture, summarise
from daskwire.terminal.printing import headlines

from tests.unit.daskwire.analysis.problems.cluster import findings
from tests.unit.daskwire.build import DATA
from tests.unit.daskwire.conftest import validate

CASES = DATA / "cases"
HEALTHY = {  # file: the problems of its capture point
    "tls-short-clients": {"wrong capture point"},
    "cluster-restarted": {"wrong capture point"},
}
FIRST_PROBLEM = {  # file: its kind and least cost
    "workers-announce-loopback": ("unreachable address", 36),
    "tls-other-ca": ("TLS failures", 0),
    "syns-dropped": ("unanswered connects", 34),
    "connections-forgotten": ("half-open connection", 56),
    "second-syn-ack": ("mid-stream reset", 1),
}

FOUND_ON_ONE_PORT = {  # file: a kind that must be found, its node and least cost
    "far-worker": ("far worker", "worker-1", 11),
    "client-killed": ("lost client", "client", 0.05),
    "scheduler-killed": ("lost scheduler", "scheduler", 0),
    "silent-proxy": ("unanswered handshake", "10.99.7.117", 12),
}


def case(*names: str) -> Capture:
    keys = "".join(path.read_text() for name in names if (path := CASES / f"{name}.keys").exists())
    capture = open_capture([CASES / f"{name}.pcap.gz" for name in names], key_log=keys or None)
    validate(capture)
    return capture


def test_both_sides_of_a_nat_with_different_clocks_count_once() -> None:
    capture = case("nat-outside", "nat-inside-clock-2s")
    assert len(capture.messages) == 118 and len(capture.translations) == 18


def test_relayed_connections_count_once_and_are_named() -> None:
    capture = case("tcp-relay")
    tasks = capture.table("tasks")
    assert len(tasks["key"]) == 35 and set(tasks["worker"]) == {"w2", "w3"}
    nodes = capture.table("nodes")
    assert sorted(nodes["node"]) == ["client", "scheduler", "scheduler", "w2", "w3"]
    assert "relay" in capture.table("reach")["source"]
    assert "wrong interface" not in capture.table("problems")["problem"]
    assert "connections were relayed; each counts once" in "\n".join(headlines(summarise(capture)))


@pytest.mark.parametrize("name", FIRST_PROBLEM)
def test_fault_is_the_first_problem(name: str) -> None:
    row, *others = findings(case(name))
    assert {other["problem"] for other in others} <= {"TLS without keys"}
    kind, cost_s = FIRST_PROBLEM[name]
    assert row["problem"] == kind and row["cost_s"] >= cost_s


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_capture_has_no_problem_of_the_cluster(name: str) -> None:
    assert {row["problem"] for row in findings(case(name))} == HEALTHY[name]


@pytest.mark.parametrize("name", FOUND_ON_ONE_PORT)
def test_fault_is_found_although_only_one_port_was_captured(name: str) -> None:
    kind, node, cost_s = FOUND_ON_ONE_PORT[name]
    (row,) = [row for row in findings(case(name)) if row["problem"] != "wrong capture point"]
    assert (row["problem"], row["source"]) == (kind, node) and row["cost_s"] >= cost_s
