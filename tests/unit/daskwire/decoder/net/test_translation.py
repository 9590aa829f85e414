"""Connections captured on both sides of a NAT, or with their opening out of order."""

from __future__ import annotations

import random
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire import Capture, rows, summarise
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import SYN, Packet, Talk, golden_bytes, packets_of, small_talk

Read = Callable[..., Capture]
DELAY_NS = 3_000
PACKETS = packets_of(golden_bytes("g3-2026.8.0"))
IPV4_ONLY = [p for p in PACKETS if p[1][12:14] == b"\x08\x00"]


def translated(packets: list[Packet], addresses: dict[str, str], ports: dict[int, int]) -> list[Packet]:
    """Translate addresses and ports, as a router does."""
    result = []
    for time_ns, data, length in packets:
        new = bytearray(data)
        for at in (26, 30):
            address = str(ip_address(data[at : at + 4]))
            new[at : at + 4] = ip_address(addresses.get(address, address)).packed
        for at in (34, 36):
            port = int.from_bytes(data[at : at + 2], "big")
            new[at : at + 2] = ports.get(port, port).to_bytes(2, "big")
        result.append((time_ns + DELAY_NS, bytes(new), length))
    return result


def both_sides(packets: list[Packet], addresses: dict[str, str], ports: dict[int, int]) -> list[Packet]:
    return sorted(packets + translated(packets, addresses, ports), key=lambda p: p[0])


def problem_rows(capture: Capture, problem: str) -> list[dict[str, Any]]:
    return [row for row in rows(capture.table("problems")) if row["problem"] == problem]


@pytest.mark.parametrize(("addresses", "ports"), [
    ({"10.0.0.2": "172.17.0.1"}, {40000: 61000}), ({"10.0.0.2": "172.17.0.1"}, {}),
    ({"10.0.0.1": "172.17.0.9"}, {8786: 30786}), ({"10.0.0.1": "172.17.0.9", "10.0.0.2": "172.17.0.1"}, {}),
])  # fmt: skip
@pytest.mark.parametrize("skipped", [0, 9])
def test_nat_is_detected_and_reported(
    read: Read, tmp_path: Path, addresses: dict[str, str], ports: dict[int, int], skipped: int
) -> None:
    packets = small_talk().packets[skipped:]
    capture = read(both_sides(packets, addresses, ports))
    assert summarise(capture)["translated_connections"] == 1
    assert len(capture.scheduler_names) == 1 and len(capture.messages) == len(read(packets).messages)
    (outer, inner) = capture.translations[0]
    assert capture.connections.endpoints(outer)[:2] in (("10.0.0.2", 40000), ("10.0.0.1", 8786))
    assert "172.17.0." in " ".join(map(str, capture.connections.endpoints(inner)))
    path = str(tmp_path / "capture.pcap")
    read(both_sides(packets, addresses, ports))
    printed = CliRunner().invoke(wire, [path], catch_exceptions=False).stdout
    assert "1 connections were captured on both sides of a NAT; each counts once" in printed
    assert f"{len(packets)} packets were captured at several points; each counts once" in printed


def test_cluster_behind_a_nat(read: Read) -> None:
    """All connections of the workers are translated; 3 % of the packets are missing."""
    hosts = {f"10.99.7.{n}": f"192.168.9.{n}" for n in (117, 118, 119)}
    chance = random.Random(4)
    packets = [p for p in both_sides(IPV4_ONLY, hosts, {}) if chance.random() > 0.03]
    capture = read(packets)
    pairs = capture.translations
    ends = [[capture.connections.endpoints(flow) for flow in pair] for pair in pairs]
    assert len(pairs) == len(set(pairs)) >= 5
    for before, behind in ends:
        assert (before[1], before[3]) == (behind[1], behind[3])
        assert {hosts.get(before[0], before[0]), hosts.get(before[2], before[2])} == {behind[0], behind[2]}
    assert list(capture.scheduler_names) == ["10.99.7.116:8786"]


def test_distinct_connections_are_not_translations(read: Read) -> None:
    assert read(PACKETS).translations == []
    ports = range(40000, 40030)
    talks = [small_talk(client=("10.0.0.2", port), isn=(port * 99991, port * 77773)) for port in ports]
    packets = sorted((p for talk in talks for p in talk.packets), key=lambda p: p[0])
    assert read(packets).translations == []


def test_reused_ports_are_not_a_translation(read: Read) -> None:
    first = small_talk()
    second = small_talk(client=("10.0.0.3", 40000), time_ns=first.time_ns)
    assert read(first.packets + second.packets).translations == []


OVERTAKEN = {"SYN-ACK": (1, 0, 2), "SYN-ACK and ACK": (1, 2, 0), "all but the data": (2, 1, 0)}


@pytest.mark.parametrize("order", OVERTAKEN.values(), ids=OVERTAKEN)
@pytest.mark.parametrize("again", [False, True])
def test_syn_captured_after_its_answer_is_answered(read: Read, order: tuple[int, ...], again: bool) -> None:
    """A NIC with two queues may deliver the SYN-ACK before its SYN."""
    talk = small_talk(isn=(70_000, 90_000))
    times = [packet[0] for packet in talk.packets]
    turned = [talk.packets[i] for i in order] + talk.packets[len(order) :]
    packets = [(time, *packet[1:]) for time, packet in zip(times, turned, strict=True)]
    earlier = small_talk(isn=(10, 20), time_ns=times[0] - 10**9).packets if again else []
    capture = read(earlier + packets)
    assert len(capture.connections) == 1 + again
    assert not problem_rows(capture, "unanswered connects") and not problem_rows(capture, "slow connects")
    assert len(capture.messages) == 12 * (1 + again)
    assert all(ms is None or ms >= 0 for ms in capture.table("flows")["handshake_ms"])


def test_syn_captured_after_data_is_answered(read: Read) -> None:
    talk = small_talk()
    packets = talk.packets[1:8] + talk.packets[:1] + talk.packets[8:]
    capture = read([(talk.packets[i][0], *packet[1:]) for i, packet in enumerate(packets)])
    assert len(capture.connections) == 1 and not problem_rows(capture, "unanswered connects")
    assert len(capture.messages) == 12


def test_reused_ports_are_two_connections(read: Read) -> None:
    first = small_talk(isn=(1000, 5000))
    second = small_talk(isn=(9_000_000, 9_500_000), time_ns=first.time_ns)
    capture = read(first.packets + second.packets)
    assert len(capture.connections) == 2 and len(capture.messages) == 24


def test_unanswered_syn_is_reported(read: Read) -> None:
    """Packets of an earlier connection on the same ports are not an answer."""
    first = small_talk(isn=(1000, 5000))
    lost = Talk(isn=(8_000_000, 0), time_ns=first.time_ns)
    for _ in range(3):
        lost.add(0, SYN, seq=lost.isn[0])
    (row,) = problem_rows(read(first.packets + lost.packets), "unanswered connects")
    assert row["what"].endswith(", 3 SYNs")
