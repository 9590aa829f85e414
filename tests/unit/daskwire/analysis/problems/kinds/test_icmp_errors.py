"""ICMP errors about TCP connections."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, connect, findings, only
from tests.unit.daskwire.build import SYN, Packet, Talk


def icmp(about: Packet, kind: int, code: int, mtu: int = 0, reporter: str = "10.0.0.3") -> Packet:
    """Answer a packet with an ICMP error."""
    time_ns, frame, _ = about
    inner = frame[14:42]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(inner), 1, 0, 64, 1, 0)
    source = ip_address(reporter).packed
    data = (
        bytes(12) + b"\x08\x00" + head + source + inner[12:16] + struct.pack(">BBHHH", kind, code, 0, 0, mtu)
    )
    return time_ns + 50_000, data + inner, len(data) + len(inner)


def rejected(cluster: Cluster, kind: int = 3, code: int = 13) -> list[Packet]:
    connect(cluster, 43000, 2.0, attempts=5)
    return [icmp(packet, kind, code) for packet in cluster.talks[-1].packets]


@pytest.mark.parametrize(("code", "reason"), [
    (13, "administratively prohibited"), (3, "port unreachable"), (1, "host unreachable"),
])  # fmt: skip
def test_rejected_connects_are_a_consequence(read: Read, code: int, reason: str) -> None:
    cluster = Cluster()
    cluster.work()
    errors = rejected(cluster, 3, code)
    capture = read(sorted([*cluster.packets, *errors], key=lambda packet: packet[0]))
    (row,) = findings(capture)
    assert (row["problem"], row["source"], row["destination"]) == ("ICMP errors", "w1", "w2")
    assert row["what"] == (
        f"packets to 10.0.0.3 port 9999 do not arrive: {reason}, reports its host, which answered 5 SYNs"
    )
    assert row["cost_s"] > 4 and only(capture, "unanswered connects", "note")


def test_target_that_rejects_several_senders_is_one_row(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    errors = rejected(cluster)
    talk = Talk(client=("10.0.0.4", 43001), server=("10.0.0.3", 9999), time_ns=cluster.at(3.0))
    for _ in range(3):
        talk.add(0, SYN, seq=9)
        talk.time_ns += SECOND_NS
    cluster.talks.append(talk)
    errors += [icmp(packet, 3, 13) for packet in talk.packets]
    (row,) = findings(read(sorted([*cluster.packets, *errors], key=lambda packet: packet[0])))
    assert (row["source"], row["destination"], row["number"]) == ("w2", "", 8)
    assert row["what"].endswith("which answered 8 SYNs")


def test_path_mtu_is_a_note(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 1.0).say(1, bytes(9000))
    error = icmp(talk.packets[-3], 3, 4, mtu=1400, reporter="10.0.0.254")
    capture = read(sorted([*cluster.packets, error], key=lambda packet: packet[0]))
    assert findings(capture) == []
    assert only(capture, "ICMP errors", "note")["what"] == (
        "packets to 10.0.0.3 are too big for 10.0.0.254: only 1,400 bytes pass"
    )


def test_errors_about_strangers_are_not_judged(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    stranger = Talk(("192.168.0.9", 5), ("192.168.0.8", 6), time_ns=cluster.at(1.0))
    stranger.add(0, SYN)
    error = icmp(stranger.packets[0], 3, 1)
    late = (error[0] + SECOND_NS, *error[1:])
    capture = read(sorted([*cluster.packets, error, late], key=lambda packet: packet[0]))
    assert "ICMP errors" not in capture.table("problems")["problem"]
