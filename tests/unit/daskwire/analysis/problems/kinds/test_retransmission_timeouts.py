"""Outages."""

from __future__ import annotations

import struct

from tests.unit.daskwire.analysis.problems.cluster import (
    SECOND_NS,
    Cluster,
    Read,
    findings,
    retransmitted,
)
from tests.unit.daskwire.build import ACK, g3, stamp


def test_outage_is_a_retransmission_time_out(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for name in ("w1", "w3"):
        talk = cluster.fetch(name, "w2", 2.0)
        reply = g3({"status": "OK"})
        retransmitted(talk, 1, reply, (0.2, 0.4, 0.8))
        talk.sent[1] += len(reply)
        talk.add(0, ACK)
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"]) == ("retransmission time-outs", "w2")
    assert "no packet passed for 1.4 s (1 episode, 6 time-outs on 2 connections)" in row["what"]


def test_outage_remains_one_if_single_segments_are_lost_later(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    for gaps_s in ((0.2, 0.2, 0.4), (0.01,), (0.01,), (0.01,)):
        reply = g3({"status": "OK"})
        retransmitted(talk, 1, reply, gaps_s)
        talk.sent[1] += len(reply)
        talk.add(0, ACK)
        talk.time_ns += SECOND_NS
    row = findings(read(cluster.packets))[0]
    assert row["problem"] == "retransmission time-outs" and "1 episode, 3 time-outs" in row["what"]


def test_spurious_retransmissions_are_ignored(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    reply = g3({"status": "OK"})
    begin = talk.isn[1] + 1 + talk.sent[1]
    retransmitted(talk, 1, reply, (0.9,))
    talk.sent[1] += len(reply)
    block = b"\x01\x01\x05\x0a" + struct.pack(">II", begin, begin + len(reply))
    talk.add(0, ACK, options=stamp(1, 1) + block)
    assert findings(read(cluster.packets)) == []
