"""The command export: a pcapng file with the same packets, and comments where messages begin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire import open_capture
from daskwire.analysis.tables.export import MAX_PACKET_COMMENTS
from daskwire.terminal.arguments import DISSECTOR
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import (
    DATA,
    GOLDEN,
    HELLO,
    Talk,
    g3,
    golden_bytes,
    packets_of,
    packets_with_comments,
    pcap,
    pcapng,
)
from tests.unit.daskwire.conftest import golden_capture


def export(output: Path, *arguments: str) -> str:
    words = ["export", *arguments, "--output", str(output)]
    result = CliRunner().invoke(wire, words, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", GOLDEN)
def test_comment_of_each_message_is_on_its_first_packet(name: str, tmp_path: Path) -> None:
    output, keys = tmp_path / "out.pcapng", DATA / f"{name}.keys"
    key_log = ["--key-log", str(keys)] if keys.exists() else []
    text = export(output, str(DATA / f"{name}.pcap.gz"), *key_log)
    messages = golden_capture(name).messages
    packets = packets_with_comments(output)
    assert text.endswith(f"{len(packets):,} packets, {len(messages):,} comments\n")
    times = [time_ns for time_ns, comments in packets for _ in comments]
    assert sorted(times) == sorted(messages.time_ns.tolist())
    sizes = [int(re.search(r", ([\d,]+) bytes", c)[1].replace(",", "")) for _, cs in packets for c in cs]
    assert sorted(sizes) == sorted(messages.size.tolist())


@pytest.mark.parametrize("name", GOLDEN)
def test_copy_has_the_same_packets_and_messages(name: str, tmp_path: Path) -> None:
    output, keys = tmp_path / "out.pcapng", DATA / f"{name}.keys"
    export(output, str(DATA / f"{name}.pcap.gz"))
    original = golden_capture(name)
    copy = open_capture(output, key_log=keys.read_text() if keys.exists() else None)
    assert copy.packets == original.packets
    for table in ("messages", "ops", "flows", "tasks"):
        assert copy.table(table) == original.table(table), table


def test_comment_names_ops_keys_nodes_and_times(tmp_path: Path) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "register-worker", "address": "tcp://10.0.0.2:3333", "name": "w", "reply": False}))
    talk.say(1, g3({"status": "OK"}))
    batch = [{"op": "compute-task", "key": f"k-{n}"} for n in range(5)] + [{"op": "close"}]
    talk.say(1, g3(batch), mtu=100)
    (tmp_path / "in.pcap").write_bytes(pcap(talk.packets))
    export(tmp_path / "out.pcapng", str(tmp_path / "in.pcap"))
    comments = [c for _, comments in packets_with_comments(tmp_path / "out.pcapng") for c in comments]
    size = len(g3(batch))
    expected = f"Dask: compute-task x 5 (k-0, k-1, k-2, ...) + close, scheduler -> w, {size} bytes"
    assert comments[-1].startswith(f"{expected}, last byte after 0.")
    assert re.search(r"register-worker, w -> scheduler, \d+ bytes, reply after 0\.200 ms$", comments[2])


def test_many_messages_in_one_packet_are_counted(tmp_path: Path) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "x"}) * (MAX_PACKET_COMMENTS + 3), mtu=1 << 15)
    (tmp_path / "in.pcap").write_bytes(pcap(talk.packets))
    export(tmp_path / "out.pcapng", str(tmp_path / "in.pcap"))
    comments = next(c for _, c in packets_with_comments(tmp_path / "out.pcapng") if len(c) > 1)
    assert len(comments) == MAX_PACKET_COMMENTS + 1
    assert comments[-1] == "Dask: 3 more messages begin in this packet"


def test_files_of_several_formats_are_merged_in_time_order(tmp_path: Path) -> None:
    packets = packets_of(golden_bytes("g3-2026.8.0"))
    half = len(packets) // 2
    (tmp_path / "b.pcap").write_bytes(pcap(packets[half:], ">"))
    (tmp_path / "a.pcapng").write_bytes(pcapng(packets[:half], ">"))
    export(tmp_path / "out.pcapng", str(tmp_path / "b.pcap"), str(tmp_path / "a.pcapng"))
    times = [time_ns for time_ns, _ in packets_with_comments(tmp_path / "out.pcapng")]
    assert times == sorted(packet[0] for packet in packets)
    table = open_capture(tmp_path / "out.pcapng").table("messages")
    assert table == golden_capture("g3-2026.8.0").table("messages")


def test_time_span_is_exported(tmp_path: Path) -> None:
    packets = packets_of(golden_bytes("g3-2026.8.0"))
    export(tmp_path / "out.pcapng", str(DATA / "g3-2026.8.0.pcap.gz"), "--since", "1", "--until", "2")
    begin = packets[0][0]
    expected = [p[0] for p in packets if begin + 10**9 <= p[0] < begin + 2 * 10**9]
    assert [time_ns for time_ns, _ in packets_with_comments(tmp_path / "out.pcapng")] == expected


def test_key_log_in_the_file_is_copied(tmp_path: Path) -> None:
    keys = (DATA / "tls-2026.8.0.keys").read_bytes()
    secrets = (10).to_bytes(4, "little") + (20 + len(keys) + -len(keys) % 4).to_bytes(4, "little")
    body = 0x544C534B.to_bytes(4, "little") + len(keys).to_bytes(4, "little") + keys + bytes(-len(keys) % 4)
    extra = secrets + body + secrets[4:]
    (tmp_path / "in.pcapng").write_bytes(pcapng(packets_of(golden_bytes("tls-2026.8.0")), extra=extra))
    export(tmp_path / "out.pcapng", str(tmp_path / "in.pcapng"))
    table = open_capture(tmp_path / "out.pcapng").table("ops")
    assert table == golden_capture("tls-2026.8.0").table("ops") and table["op"]


def test_unwritable_output_is_one_line_and_leaves_no_draft(tmp_path: Path) -> None:
    capture = str(DATA / "g3-2026.8.0.pcap.gz")
    target = tmp_path / "folder"
    target.mkdir()
    result = CliRunner().invoke(wire, ["export", capture, "-o", str(target)])
    assert (result.exit_code, result.stderr) == (3, f"daskwire: {target}: Is a directory\n")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_dissector_prints_its_path() -> None:
    assert CliRunner().invoke(wire, ["dissector"]).stdout == f"{DISSECTOR}\n"


def test_dissector_is_installed_below_the_home_folder_without_tshark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(wire, ["dissector", "--install"], catch_exceptions=False)
    copy = tmp_path / ".local/lib/wireshark/plugins/dask.lua"
    assert result.stdout == f"{copy}\n"
    assert copy.read_text() == DISSECTOR.read_text()
