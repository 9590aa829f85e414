"""Packets that the capture lost."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from daskwire.terminal.cli import wire

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import g3, golden_bytes, packets_of, pcap

PACKETS = packets_of(golden_bytes("g3-2026.8.0"))


def test_bytes_lost_by_the_capture(read: Read) -> None:
    data = [i for i, p in enumerate(PACKETS) if len(p[1]) > 3000]
    row = only(read([p for i, p in enumerate(PACKETS) if i != data[3]]), "incomplete capture")
    assert row["number"] == PACKETS[data[3]][2] - 66 and "were acknowledged but not captured" in row["what"]


def test_small_snaplen_is_an_incomplete_capture(read: Read, tmp_path: Path) -> None:
    capture = read(pcap(PACKETS, snaplen=96))
    rows_ = [row for row in findings(capture) if "were truncated to 96 bytes" in row["what"]]
    number = sum(length > 96 for _, data, length in PACKETS if data[12:14] == b"\x08\x00")
    assert [row["number"] for row in rows_] == [number]
    output = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")]).stdout
    assert f"SNAPLEN TOO SMALL: {number} packets were truncated to 96 bytes" in output


def test_sufficient_snaplen_is_not_a_problem(read: Read) -> None:
    """Only payload is truncated."""
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 1.0).say(1, g3({"status": "OK"}, bytes(30_000)), mtu=40_000)
    capture = read(pcap(cluster.packets, snaplen=300))
    assert (capture.segments.captured < capture.segments.length).any() and findings(capture) == []


def test_damaged_file_is_a_problem_and_a_truncated_one_a_note(read: Read) -> None:
    cut = only(read(pcap(PACKETS)[:-3]), "incomplete capture", "note")
    assert "truncated: the last record" in cut["what"]
    raw = bytearray(pcap(PACKETS))
    place = len(pcap(PACKETS[:300]))
    raw[place : place + 16] = b"\xff" * 16
    assert any("damaged at byte" in row["what"] for row in findings(read(bytes(raw))))
