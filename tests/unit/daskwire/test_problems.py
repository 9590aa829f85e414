"""The view that says what is wrong: each kind of trouble is found, and a capture without any says so."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire import Capture, rows
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import (
    ACK,
    DATA,
    HELLO,
    PSH,
    RST,
    SYN,
    Packet,
    Talk,
    g3,
    golden_bytes,
    packets_of,
    pcap,
)

Read = Callable[..., Capture]
SECOND_NS = 1_000_000_000
PACKETS = packets_of(golden_bytes("g3-2026.8.0"))
GOLDEN = str(DATA / "g3-2026.8.0.pcap.gz")


def found(capture: Capture, problem: str) -> list[dict[str, Any]]:
    return [row for row in rows(capture.table("problems")) if row["problem"] == problem]


def only(capture: Capture, problem: str) -> dict[str, Any]:
    (row,) = found(capture, problem)
    return row


def beat(talk: Talk, announced: float = 0.5) -> None:
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333", "name": "w1"}))
    talk.say(1, g3({"status": "OK", "heartbeat-interval": announced}))


def greeted(**options: Any) -> Talk:
    return Talk(**options).open().say(0, g3(HELLO)).say(1, g3(HELLO))


def test_nothing_found_is_an_answer() -> None:
    result = CliRunner().invoke(wire, ["problems", GOLDEN])
    assert result.exit_code == 0 and result.stdout.startswith("no problem found\n\nslowest transfers ")
    output = json.loads(CliRunner().invoke(wire, ["problems", GOLDEN, "--json"]).stdout)
    assert output["rows"] == []
    slow = [row["wire_ms"] for row in output["slowest_transfers"]]
    assert len(slow) == 10 and slow == sorted(slow, reverse=True)


def test_late_heartbeats_and_late_answers(read: Read) -> None:
    talk = greeted()
    for wait_s in (0.5, 0.5, 0.99, 1.01, 7.0, 0.5):
        beat(talk)
        talk.time_ns += int(wait_s * SECOND_NS)
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333", "name": "w1"}))
    talk.time_ns += 3 * SECOND_NS
    talk.say(1, g3({"status": "OK", "heartbeat-interval": 0.5}))
    capture = read(talk.packets)
    late, slow = only(capture, "late heartbeat"), only(capture, "slow answer")
    assert (late["source"], late["number"], round(late["worst_ms"])) == ("w1", 2, 7000)
    assert (slow["source"], slow["destination"], round(slow["worst_ms"])) == ("scheduler", "w1", 3000)


def test_the_interval_is_judged_by_what_was_asked_before(read: Read) -> None:
    talk = greeted()
    for announced, wait_s in ((5.0, 9.0), (0.5, 0.5)):
        beat(talk, announced)
        talk.time_ns += int(wait_s * SECOND_NS)
    beat(talk)
    assert not found(read(talk.packets), "late heartbeat")


def test_failed_and_slow_connects(read: Read) -> None:
    talk = greeted()
    packets = talk.packets
    for port in (41000, 41001, 41002):
        early = Talk(client=("10.0.0.2", port), time_ns=talk.time_ns)
        early.add(0, SYN, seq=1)
        early.add(1, RST | ACK, seq=0)
        packets += early.packets
    lost = Talk(client=("10.0.0.3", 42000), server=("10.0.0.9", 8786), time_ns=talk.time_ns)
    for _ in range(4):
        lost.add(0, SYN, seq=7)
        lost.time_ns += SECOND_NS
    again = Talk(client=("10.0.0.4", 43000), time_ns=talk.time_ns)
    again.add(0, SYN, seq=again.isn[0])
    again.time_ns += SECOND_NS
    again.add(0, SYN, seq=again.isn[0])
    again.add(1, SYN | ACK, seq=again.isn[1])
    again.add(0, ACK)
    far = Talk(client=("10.0.0.5", 44000), time_ns=talk.time_ns, step_ns=SECOND_NS).open()
    capture = read(packets + lost.packets + again.packets + far.packets)
    refused, silent = only(capture, "refused connect"), only(capture, "unanswered connect")
    assert (refused["number"], refused["what"]) == (3, "to 10.0.0.1 port 8786, with 3 SYNs")
    assert (silent["source"], silent["number"]) == ("10.0.0.3", 1)
    assert silent["what"] == "to 10.0.0.9 port 8786, with 4 SYNs"
    slow = {row["source"]: row["worst_ms"] for row in found(capture, "slow connect")}
    assert slow == {"10.0.0.4": None, "10.0.0.5": 2000.0}


def test_a_slow_handshake_of_dask(read: Read) -> None:
    """The kernel takes a connection at once; Dask's answer waits for its event loop."""
    talk = Talk().open().say(0, g3(HELLO))
    talk.time_ns += 12 * SECOND_NS
    beat(talk.say(1, g3(HELLO)))
    slow = only(read(talk.packets), "slow handshake")
    assert (slow["source"], slow["destination"], slow["number"]) == ("scheduler", "w1", 1)
    assert slow["worst_ms"] == pytest.approx(12_000, abs=2)


def test_windows_resets_and_retransmissions(read: Read) -> None:
    talk = greeted()
    beat(talk)
    data = g3({"op": "x", "pad": "y" * 20_000})
    begin = talk.isn[0] + 1 + talk.sent[0]
    talk.say(0, data)
    for at in range(0, 7 * 1448, 1448):
        talk.add(0, ACK | PSH, data[at : at + 1448], seq=begin + at)
    talk.add(1, ACK, window=0)
    talk.add(1, RST)
    capture = read(talk.packets)
    assert only(capture, "zero window")["source"] == "scheduler"
    assert only(capture, "reset")["number"] == 1
    again = only(capture, "retransmissions")
    assert (again["source"], again["number"]) == ("w1", 7) and "0 of these needlessly" in again["what"]


def test_lost_by_the_capture(read: Read) -> None:
    data = [i for i, p in enumerate(PACKETS) if len(p[1]) > 3000]
    capture = read([p for i, p in enumerate(PACKETS) if i != data[3]])
    lost = only(capture, "lost by the capture")
    assert lost["number"] == PACKETS[data[3]][2] - 66 and "%" in lost["what"]


def test_a_snaplen_that_is_too_small_is_said(read: Read, tmp_path: Path) -> None:
    """``-s 96`` was "100 % seen, 0.70 % framed" and no word of why."""
    capture = read(pcap(PACKETS, snaplen=96))
    row = only(capture, "snaplen too small")
    assert row["number"] == sum(length > 96 for _, data, length in PACKETS if data[12:14] == b"\x08\x00")
    assert row["what"].startswith("packets cut after 96 bytes: ")
    output = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")]).stdout
    assert f"SNAPLEN TOO SMALL: {row['number']} packets were truncated to 96 bytes" in output


def test_a_snaplen_that_suffices_is_not(read: Read) -> None:
    """Payload that is cut costs nothing."""
    talk = greeted()
    talk.say(1, g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(30_000)), mtu=40_000)
    capture = read(pcap(talk.packets, snaplen=300))
    assert (capture.segments.captured < capture.segments.length).any()
    assert not found(capture, "snaplen too small")


def test_damage_order_and_tunnels_are_told_here_too(read: Read) -> None:
    cut = only(read(pcap(PACKETS)[:-3]), "file")
    assert "truncated: the last record" in cut["what"]
    turned = only(read([p for p in PACKETS if p[1][12:14] == b"\x08\x00"][::-1]), "file")
    assert turned["what"].endswith("packets were out of order and were sorted by time")
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 60, 1, 0, 64, 17, 0) + bytes(8)
    frame = bytes(12) + b"\x08\x00" + ip + struct.pack(">HHHH", 1, 51820, 40, 0) + bytes(32)
    wireguard: Packet = (PACKETS[-1][0], frame, len(frame))
    tunnel = only(read([*PACKETS, wireguard]), "likely tunnel")
    assert (tunnel["number"], tunnel["what"]) == (1, "packets that were not looked into: WireGuard")


def test_what_dask_itself_complains_of(read: Read) -> None:
    talk = greeted()
    beat(talk)
    talk.say(0, g3([{"op": "task-erred", "key": "a"}, {"op": "task-erred", "key": "b"}]))
    talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    talk.say(1, g3({"status": "busy"}))
    capture = read(talk.packets)
    assert (only(capture, "erred tasks")["source"], only(capture, "erred tasks")["number"]) == ("w1", 2)
    assert only(capture, "busy")["destination"] == "w1"


def test_transfers_tell_speed_and_round_trip(read: Read) -> None:
    talk = greeted(step_ns=1_000_000)
    talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    reply = g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(10 * 1448))
    talk.say(1, reply)
    table = read(talk.packets).table("transfers")
    packets = -(-len(reply) // 1448)
    assert table["wire_ms"] == [pytest.approx(packets - 1)]
    assert table["mb_s"] == [pytest.approx(len(reply) / 1e6 / ((packets - 1) / 1e3), abs=1e-3)]
    assert table["rtt_min_ms"] == [pytest.approx(1.0)]
