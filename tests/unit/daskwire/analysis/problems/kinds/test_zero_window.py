"""Processes that do not read."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, only
from tests.unit.daskwire.build import ACK, g3


def stop_reading(cluster: Cluster, peer: str, pause_s: float, at_s: float = 2.0) -> None:
    """Let w2 not read what a peer sends."""
    talk = cluster.fetch(peer, "w2", at_s)
    data = g3({"status": "OK"}, bytes(500_000))
    talk.say(1, data[:200_000], mtu=50_000)
    talk.add(0, ACK, window=0)
    talk.time_ns += int(pause_s * SECOND_NS)
    talk.add(0, ACK, window=500)
    talk.say(1, data[200_000:], mtu=50_000)


def test_zero_window_costs_its_duration(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    stop_reading(cluster, "w1", 1.5)
    row = only(read(cluster.packets), "zero window")
    assert (row["source"], row["destination"]) == ("w2", "w1")
    assert row["cost_s"] == pytest.approx(1.5, abs=0.01) and "waiting: w1" in row["what"]


def test_short_pause_is_a_note_whatever_the_number_of_peers(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for peer in ("w1", "w3"):
        stop_reading(cluster, peer, 0.7)
    row = only(read(cluster.packets), "zero window", "note")
    assert row["cost_s"] == pytest.approx(1.4, abs=0.01) and "waiting: w1, w3" in row["what"]


@pytest.mark.parametrize(("number", "severity"), [(3, "note"), (8, "problem")])
def test_short_pauses_count_if_they_take_most_of_the_work(read: Read, number: int, severity: str) -> None:
    """A worker that splits data frames pauses again and again, for as long as the shuffle takes."""
    cluster = Cluster()
    cluster.work()
    for step in range(number):
        stop_reading(cluster, "w1", 0.7, 1.0 + step)
    row = only(read(cluster.packets), "zero window", severity)
    assert row["cost_s"] == pytest.approx(0.7 * number, abs=0.01) and "longest 0.70 s" in row["what"]
