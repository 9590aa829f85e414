"""Strangers on a full link."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, Packet, Talk, g3, tcp_packet

SEGMENT = 1448
SPACING_NS = 1_000_000  # 1,448 bytes every ms: 12 Mbit/s


def stream(talk: Talk, begin_ns: int, numbers: list[int], queue_ns: int) -> list[Packet]:
    """Let a server send a segment at each number of ms; the client acknowledges it after the queue."""
    packets = []
    for index, number in enumerate(numbers):
        time_ns, seq = begin_ns + number * SPACING_NS, talk.isn[1] + 1 + talk.sent[1] + index * SEGMENT
        data = tcp_packet(talk.server, talk.client, seq, talk.isn[0] + 1 + talk.sent[0], ACK, bytes(SEGMENT))
        ack = tcp_packet(talk.client, talk.server, talk.isn[0] + 1 + talk.sent[0], seq + SEGMENT, ACK)
        packets += [(time_ns, data, len(data)), (time_ns + queue_ns, ack, len(ack))]
    return packets


def shared_link(queue_ns: int, share: int, faster_alone: bool = False) -> list[Packet]:
    """Let w2 receive data for five seconds; each ``share``-th segment is a stranger's."""
    cluster = Cluster()
    cluster.work()
    fetch = cluster.fetch("w1", "w2", 0.5)
    size = 6_000 * SEGMENT
    fetch.say(1, g3({"status": "OK"}, bytes(size))[:SEGMENT])  # the first segment of a long message
    stranger = Talk(("10.0.0.3", 22_222), ("10.0.0.77", 80), isn=(3, 9), time_ns=cluster.at(0.6)).open()
    cluster.talks.append(stranger)
    begin_ns = cluster.at(1.0)
    theirs = list(range(0, 5000, share))
    ours = sorted(set(range(5000)) - set(theirs))
    packets = [*cluster.packets, *stream(fetch, begin_ns, ours, queue_ns)]
    packets += stream(stranger, begin_ns, theirs, queue_ns)
    if faster_alone:
        fetch.sent[1] += len(ours) * SEGMENT
        fast = stream(fetch, cluster.at(7.0), list(range(600)), queue_ns)
        packets += [(time_ns - (time_ns - cluster.at(7.0)) * 2 // 3, data, n) for time_ns, data, n in fast]
    return sorted(packets, key=lambda packet: packet[0])


def test_stranger_with_a_third_of_a_full_link(read: Read) -> None:
    row = only(read(shared_link(60_000_000, 3)), "cross traffic")
    assert row["source"] == "w2" and "10.0.0.77" in row["what"] and "33 % of the bytes to it" in row["what"]
    assert row["cost_s"] == pytest.approx(5 / 3, rel=0.1)


@pytest.mark.parametrize(("queue_ns", "share", "faster_alone"), [
    (300_000, 3, False), (60_000_000, 20, False), (60_000_000, 3, True),
])  # fmt: skip
def test_link_that_is_not_full_or_hardly_shared(
    read: Read, queue_ns: int, share: int, faster_alone: bool
) -> None:
    capture = read(shared_link(queue_ns, share, faster_alone))
    assert "cross traffic" not in [row["problem"] for row in findings(capture)]
