"""Names that are looked up without an answer."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, findings, only
from tests.unit.daskwire.build import Packet

SERVER = "10.0.0.53"


def dns(
    time_ns: int, name: str, client: str = "10.0.0.2", code: int | None = None, records: int = 0
) -> Packet:
    """Build a query, or the answer with a code."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + bytes(5)
    flags = 0x100 if code is None else 0x8180 | code
    body = struct.pack(">6H", time_ns // SECOND_NS % 60000 if code is None else 0, flags, 1, records, 0, 0)
    body += question
    ends = [(client, 40053), (SERVER, 53)][:: 1 if code is None else -1]
    udp = struct.pack(">HHHH", ends[0][1], ends[1][1], 8 + len(body), 0) + body
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    data = bytes(12) + b"\x08\x00" + head + b"".join(ip_address(end[0]).packed for end in ends) + udp
    return time_ns, data, len(data)


def answer(query: Packet, code: int, records: int = 0) -> Packet:
    """Answer a query after a millisecond."""
    name = query[1][54:-5]
    labels, at = [], 0
    while at < len(name):
        labels.append(name[at + 1 : at + 1 + name[at]].decode())
        at += 1 + name[at]
    time_ns, data, size = dns(query[0] + 1_000_000, ".".join(labels), code=code, records=records)
    return time_ns, data[:42] + query[1][42:44] + data[44:], size


def diagnosed(read: Read, packets: list[Packet]) -> list[dict[str, object]]:
    cluster = Cluster()
    cluster.work()
    capture = read(sorted([*cluster.packets, *packets], key=lambda packet: packet[0]))
    return [row for row in findings(capture) if row["problem"] == "unanswered DNS"]


def queries(cluster: Cluster, name: str = "scheduler.default.svc") -> list[Packet]:
    return [dns(cluster.at(1.0 + 5 * number), name) for number in range(3)]


def test_name_server_that_does_not_answer(read: Read) -> None:
    (row,) = diagnosed(read, queries(Cluster()))
    assert row["what"] == "asked 10.0.0.53 for scheduler.default.svc 3 times within 10.0 s: no answer"
    assert row["source"] == "w1" and row["cost_s"] == pytest.approx(10)


def test_name_that_does_not_exist(read: Read) -> None:
    asked = queries(Cluster())
    (row,) = diagnosed(read, [*asked, *(answer(query, 3) for query in asked)])
    assert str(row["what"]).endswith(": no such name")


def test_search_list_and_success_are_healthy(read: Read) -> None:
    cluster = Cluster()
    first, second = dns(cluster.at(1.0), "scheduler.local"), dns(cluster.at(2.0), "scheduler")
    packets = [first, answer(first, 3), (second[0] - SECOND_NS + 2_000_000, *second[1:])]
    assert diagnosed(read, [*packets, answer(packets[2], 0, 1)]) == []


def test_only_the_cluster_is_judged(read: Read) -> None:
    names = [dns(Cluster().at(1.0 + number), "www.example", client="192.168.0.7") for number in range(4)]
    assert diagnosed(read, names) == []


def test_capture_with_nothing_but_queries(read: Read) -> None:
    row = only(read(queries(Cluster(), "dask-scheduler")), "unanswered DNS")
    assert row["source"] == "10.0.0.2"


def test_clock_that_was_set_back_between_queries(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    packets = sorted([*cluster.packets, *queries(cluster)], key=lambda packet: packet[0])
    back_ns, middle = 3600 * SECOND_NS, len(packets) // 2
    later = [(time_ns - back_ns, *packet) for time_ns, *packet in packets[middle:]]
    assert packets[middle][0] < cluster.at(6.0)
    row = only(read([*packets[:middle], *later]), "unanswered DNS")
    assert row["cost_s"] == pytest.approx(10, abs=0.5)
