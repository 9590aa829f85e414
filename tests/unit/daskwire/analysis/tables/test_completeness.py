"""Completeness of a capture: bytes, messages, connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire import Capture, completeness, open_capture, rows, summarise
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import (
    ACK,
    DATA,
    FIN,
    GOLDEN,
    HELLO,
    RST,
    Packet,
    Talk,
    g3,
    golden_bytes,
    packets_of,
    pcap,
    small_talk,
)
from tests.unit.daskwire.conftest import golden_capture

Read = Callable[..., Capture]
G3 = packets_of(golden_bytes("g3-2026.8.0"))


def closed(talk: Talk) -> Talk:
    for who in (0, 1):
        talk.add(who, FIN | ACK)
        talk.sent[who] += 1
    talk.add(0, ACK)
    return talk


def shown(tmp_path: Path, packets: list[Packet] | bytes) -> str:
    path = tmp_path / "shown.pcap"
    path.write_bytes(packets if isinstance(packets, bytes) else pcap(packets))
    return CliRunner().invoke(wire, [str(path)], catch_exceptions=False).stdout


def incomplete(capture: Capture, evidence: str) -> dict[str, Any]:
    """Return the finding about an incomplete capture with this evidence."""
    found = [row for row in rows(capture.table("problems")) if row["problem"] == "incomplete capture"]
    (row,) = [row for row in found if evidence in row["what"]]
    return row


@pytest.mark.parametrize("name", GOLDEN)
def test_whole_capture_is_complete(name: str) -> None:
    output = summarise(golden_capture(name))
    whole = output["completeness"]
    assert output["complete"] and whole["messages_seen"] == 1.0
    assert whole["messages_missing"] == whole["began_before"] == whole["open_at_end"] == 0
    assert whole["unrecognised"] == 0


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith("g1-2.8")])
def test_capture_that_starts_mid_stream_is_incomplete(read: Read, tmp_path: Path, name: str) -> None:
    packets = packets_of(golden_bytes(name))
    half = packets[len(packets) // 2 :]
    output = summarise(read(half))
    whole = output["completeness"]
    assert not output["complete"] and whole["began_before"] + whole["unrecognised"] > 4
    text = shown(tmp_path, half)
    assert "incomplete: " in text and "began before the capture" in text
    if not name.startswith(("tls", "ws")):
        assert whole["messages_seen"] < 1 and "% of stream bytes" not in text
        row = incomplete(read(half), "Dask connections began before the capture")
        assert row["number"] == whole["began_before"] and row["severity"] == "note"


def test_missing_handshake_is_not_estimated_for_early_versions(read: Read, tmp_path: Path) -> None:
    packets = packets_of(golden_bytes("g1-2.8.0"))
    half = packets[len(packets) // 2 :]
    whole = completeness(read(half))
    assert whole["began_before"] == 7 and whole["messages_missing"] == 0
    text = shown(tmp_path, half)
    assert "incomplete: 7 of 9 Dask connections began before the capture\n" in text and "100.00 %" not in text


@pytest.mark.parametrize("cut", [lambda raw: raw[: len(raw) // 2], lambda _: pcap(G3[: len(G3) // 2])],
                         ids=["within a packet", "between packets"])  # fmt: skip
def test_truncated_capture_is_incomplete(read: Read, tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    raw = cut(pcap(G3))
    output = summarise(read(raw))
    assert not output["complete"] and output["completeness"]["open_at_end"] == 8
    text = shown(tmp_path, raw)
    assert "8 of 8 Dask connections were open when it ended" in text and "100.00 %" not in text


@pytest.mark.parametrize("end", [FIN, RST])
def test_fin_or_rst_ends_a_connection(read: Read, end: int) -> None:
    talk = small_talk()
    assert completeness(read(talk.packets))["open_at_end"] == 1
    talk.add(1, end | ACK)
    assert completeness(read(talk.packets))["open_at_end"] == 0


def beats(number: int = 60) -> Talk:
    """Build many small messages and a large one that has nearly all bytes."""
    talk = small_talk(number // 2)
    talk.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    talk.say(1, g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(3_000_000)), mtu=60_000)
    for beat in range(number // 2):
        talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333", "now": float(beat)}))
        talk.say(1, g3({"status": "OK", "time": 1.0, "heartbeat-interval": 0.5}))
    return closed(talk)


def test_share_of_missing_messages_is_reported(read: Read, tmp_path: Path) -> None:
    """Also if the missing messages contain few of the bytes."""
    whole = beats().packets
    chance = random.Random(3)
    few = [p for p in whole if not 66 < len(p[1]) < 400 or chance.random() < 0.64]
    truth, seen = len(read(whole).messages), len(read(few).messages)
    shares = completeness(read(few))
    assert shares["stream_seen"] > 0.99 and seen < 0.75 * truth
    assert shares["messages_missing"] == pytest.approx(truth - seen, rel=0.25)
    assert shares["messages_seen"] == pytest.approx(seen / truth, rel=0.1)
    assert f"{seen} of about {seen + shares['messages_missing']} messages seen" in shown(tmp_path, few)
    missing = f"about {shares['messages_missing']} messages are missing"
    assert missing in incomplete(read(few), "acknowledged but not captured")["what"]


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.startswith(("tls", "ws"))])
def test_estimate_of_missing_messages_is_close(read: Read, name: str, share: float) -> None:
    chance = random.Random(1)
    remaining = [p for p in packets_of(golden_bytes(name)) if chance.random() > share]
    capture = read(remaining)
    gone = len(golden_capture(name).messages) - len(capture.messages)
    assert completeness(capture)["messages_missing"] == pytest.approx(gone, rel=0.5, abs=8)


def test_missing_end_of_a_stream_is_derived_from_acks(read: Read) -> None:
    """A hole after the last captured segment counts."""
    talk = small_talk(3)
    before = completeness(read(talk.packets))
    size = len(data := g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333"}))
    lost = len(talk.packets)
    talk.say(0, data).add(1, ACK)
    remaining = [p for i, p in enumerate(talk.packets) if i != lost]
    shares = completeness(read(remaining))
    assert before["lost_by_capture_bytes"] == 0 and shares["lost_by_capture_bytes"] == size
    assert shares["messages_missing"] == 1 and shares["stream_seen"] < 1


def test_fin_is_not_a_lost_byte(read: Read) -> None:
    talk = closed(small_talk(3))
    for remaining in (talk.packets, [p for p in talk.packets if not p[1][47] & FIN]):
        whole = completeness(read(remaining))
        assert whole["lost_by_capture_bytes"] == 0 and whole["stream_seen"] == 1.0


@pytest.mark.parametrize("seq", [0, 1 << 31, 0xFFFFFFFF])
def test_shares_are_valid_for_absurd_sequence_numbers(read: Read, seq: int) -> None:
    talk = closed(small_talk(20))
    time_ns, data, length = talk.packets[20]
    talk.packets[20] = time_ns, data[:38] + seq.to_bytes(4, "big") + data[42:], length
    shares = completeness(read(talk.packets))
    assert all(0 <= shares[name] <= 1 for name in ("stream_seen", "framed", "messages_seen"))


def test_uncaptured_direction_is_derived_from_acks(read: Read) -> None:
    """With asymmetric routes, only one direction may be captured."""
    talk = closed(small_talk(20))
    server = bytes([10, 0, 0, 1])
    there = [p for p in talk.packets if p[1][26:30] != server]
    whole, half = read(talk.packets), read(there)
    sent = sum(whole.messages.size[whole.messages.flow == int(whole.messages.flow[1])])
    flows = half.table("flows")
    assert len(flows["source"]) == 2 and sorted(flows["missing_bytes"])[0] == 0
    assert sorted(flows["missing_bytes"])[1] == pytest.approx(sent, abs=1)
    shares = completeness(half)
    assert shares["stream_seen"] < 0.7 and 0.4 < shares["messages_seen"] < 0.6


@pytest.mark.parametrize("name", ["ws-2026.8.0", "tls-2026.8.0"])
def test_encrypted_bytes_after_a_hole_are_not_framed(name: str, tmp_path: Path) -> None:
    """TLS and WebSocket cannot be resynchronised after a hole."""
    keys = DATA / f"{name}.keys"
    packets = packets_of(golden_bytes(name))
    large = max(range(len(packets) // 2), key=lambda i: len(packets[i][1]))
    path = tmp_path / "hole.pcap"
    path.write_bytes(pcap(packets[:large] + packets[large + 1 :]))
    capture = open_capture(path, key_log=keys.read_text() if keys.exists() else None)
    shares = completeness(capture)
    assert shares["framed"] < 1 and shares["messages_missing"] > 0
    assert len(capture.messages) < len(golden_capture(name).messages)


def test_nearly_complete_is_not_rounded_up(read: Read, tmp_path: Path) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(1, g3({"status": "OK", "data": {"x": {"__Serialized__": 1}}}, bytes(30_000_000)), mtu=65_000)
    talk.say(1, g3({"status": "OK"}))
    closed(talk)
    lost = next(i for i in range(len(talk.packets) - 1, 0, -1) if len(talk.packets[i][1]) > 66)
    remaining = [p for i, p in enumerate(talk.packets) if i != lost]
    assert completeness(read(remaining))["stream_seen"] < 1
    assert "99.99 % of stream bytes seen" in shown(tmp_path, remaining)


def test_capture_without_dask_is_not_complete(read: Read, tmp_path: Path) -> None:
    talk = Talk().open().say(0, b"hello").say(1, b"you")
    assert not summarise(read(talk.packets))["complete"]
    text = shown(tmp_path, talk.packets)
    assert "no Dask messages found" in text and "\ncomplete" not in text
