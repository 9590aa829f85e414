"""Packets that are lost again and again."""

from __future__ import annotations

import struct

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only, transfer
from tests.unit.daskwire.build import ACK


@pytest.mark.parametrize("side", ["before", "behind"])
def test_loss_has_a_direction_and_a_side(read: Read, side: str) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0, step_ns=10_000_000)
    transfer(talk, 1_000_000, lambda number: f"lost {side}" if number % 12 == 6 else "")
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("loss", "w1", "w2")
    assert row["number"] == 57 and f"{side} the capture point" in row["what"]


@pytest.mark.parametrize(("reported", "needless", "lost"), [(1_000_000, 58, []), (500_000, 29, [28])])
def test_what_arrived_twice_was_not_lost(read: Read, reported: int, needless: int, lost: list[int]) -> None:
    """Packets that overtook each other behind the capture point were sent again without need.

    The receiver reports in one D-SACK all that it has twice.
    """
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0, step_ns=10_000_000)
    begin = talk.isn[1] + 1 + talk.sent[1]
    transfer(talk, 1_000_000, lambda number: "lost behind" if number % 12 == 6 else "")
    block = b"\x01\x01\x05\x0a" + struct.pack(">II", begin, begin + reported)
    talk.add(0, ACK, options=block)
    capture = read(cluster.packets)
    assert [row["number"] for row in findings(capture)] == lost
    assert sum(capture.table("flows")["spurious"]) == needless


def test_loss_that_costs_little_is_a_note(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0, step_ns=2_000_000)
    transfer(talk, 1_000_000, lambda number: "lost behind" if number % 97 == 50 else "")
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "loss", "note")["number"] == 7
