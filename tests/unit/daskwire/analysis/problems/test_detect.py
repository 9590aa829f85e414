"""A healthy capture has no problem; a finding has its place, time, cost and filter."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire.analysis.problems import kinds
from daskwire.analysis.problems.kinds import KINDS
from daskwire.terminal.cli import wire

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, retransmitted
from tests.unit.daskwire.build import DATA, GOLDEN, g3
from tests.unit.daskwire.conftest import golden_capture

GOLDEN_PATH = str(DATA / "g3-2026.8.0.pcap.gz")


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith(("tls", "ws"))])
def test_healthy_capture_has_no_problem(name: str) -> None:
    assert findings(golden_capture(name)) == []


def test_healthy_cluster_has_no_problem(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 1.0).say(1, g3({"status": "OK"}, bytes(3_000_000)), mtu=60_000)
    assert findings(read(cluster.packets)) == []


def test_output_has_place_time_cost_and_filter(read: Read, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    for at_s in (0.0, 0.5, 4.5, 5.0):
        cluster.beat("w2", at_s)
    read(cluster.packets)
    output = CliRunner().invoke(wire, ["problems", str(tmp_path / "capture.pcap")]).stdout
    assert output.startswith(
        "1. blocked worker loop: w2\n   sent no message for 4.0 s, though heartbeats were due\n"
    )
    assert re.search(
        r"\n   from \d\.\d+ to \d\.\d+ s \(4\.0 s\), cost 4\.0 s of waiting, certainty 90 %\n", output
    )
    assert "\n   filter: (ip.addr == 10.0.0.1 && ip.addr == 10.0.0.3) && (tcp.port == " in output
    assert KINDS["blocked worker loop"].advice in output


def test_each_module_of_a_kind_is_in_the_registry() -> None:
    modules = {module.name for module in pkgutil.iter_modules(kinds.__path__)}
    assert modules == {kind.detect.__module__.rpartition(".")[2] for kind in KINDS.values()}


def test_effects_are_kinds() -> None:
    for kind in KINDS.values():
        assert kind.effects <= set(KINDS) - {kind.name}


def test_costs_are_bounded_by_the_time_that_was_captured(read: Read) -> None:
    """Nobody is known to have waited while nothing was recorded, or for a packet with a false time."""
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    retransmitted(talk, 1, g3({"status": "OK"}), (0.2, 0.4, 0.8, 10_000_000.0))
    capture = read(cluster.packets)
    assert sum(capture.table("problems")["cost_s"]) < 4 * 10.0
