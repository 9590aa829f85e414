"""Growing files that are damaged, unchanged, compressed or replaced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daskwire.analysis.live.follower import Follower
from daskwire.analysis.live.recording import Recording
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import (
    DATA,
    HELLO,
    Talk,
    block,
    g3,
    golden_bytes,
    packets_of,
    pcap,
    pcapng,
)
from tests.waiting import until

RAW = golden_bytes("g3-2026.8.0")
PACKETS = packets_of(RAW)


def follow(path: Path) -> Result:
    return CliRunner().invoke(wire, ["live", str(path), "--interval", "0.1"], catch_exceptions=False)


def damaged(form: str) -> tuple[bytes, int]:
    """Build a file with an invalid record in the middle; return it and the position."""
    if form == "pcap":
        whole, at = pcap(PACKETS), len(pcap(PACKETS[:100]))
    else:
        whole, at = pcapng(PACKETS), len(pcapng(PACKETS[:100]))
    return whole[:at] + b"\xff" * 16 + whole[at:], at


@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_follow_ends_at_damage(tmp_path: Path, form: str) -> None:
    path = tmp_path / "growing"
    raw, at = damaged(form)
    path.write_bytes(raw)
    result = follow(path)  # terminates
    assert result.exit_code == 3
    assert result.stderr.startswith(f"daskwire: {path}: damaged at byte {at}: no ")
    assert len(result.stderr.splitlines()) == 1


def test_follow_waits_for_an_incomplete_record(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(RAW[:-7])
    follower = Follower(path)
    output = follower.poll()
    follower.check()
    path.write_bytes(RAW)
    assert len(output) > 100 and not follower.poll()
    follower.check()


def test_polling_an_unchanged_file_is_free(tmp_path: Path) -> None:
    """Also if the file ends with the start of an 8 MB record."""
    path = tmp_path / "growing.pcap"
    path.write_bytes(RAW + RAW[24:32] + (15_000_000).to_bytes(4, "little") * 2 + bytes(8_000_000))
    follower = Follower(path)
    follower.poll()
    begin = time.process_time()
    for _ in range(100):
        assert follower.poll() == []
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize("network", ["10.0.{}.{}", "2001:db8::{}:{}"])
def test_number_of_connections_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    """A connection that stays active is followed, however many others come and go."""
    monkeypatch.setattr("daskwire.analysis.live.follower.MAX_CONNECTIONS", 20)
    path, server = tmp_path / "growing.pcap", (network.format(9, 9), 8786)
    path.write_bytes(pcap([]))
    follower = Follower(path)
    steady = Talk(client=(network.format(0, 1), 40000), server=server).open().say(0, g3(HELLO))
    ops, numbers = [], []
    for number in range(60):
        other = Talk(client=(network.format(1, 99 - number), 50000), server=server, time_ns=steady.time_ns)
        other.open().say(0, b"GET / HTTP/1.1" * 400 if number % 2 else g3(HELLO))
        steady.time_ns = other.time_ns
        whole = g3([{"op": f"op-{number}"}])
        steady.say(1, whole[:9])  # the rest comes after the next poll
        with path.open("ab") as file:
            file.write(pcap(steady.packets + other.packets)[24:])
        messages = follower.poll()
        steady.packets = []
        steady.say(1, whole[9:])
        ops += [message.ops for message in messages if message.ops]
        numbers.append(len(follower._shared.connections))
        assert {follower.addresses(message.flow)[0] for message in messages if message.ops} <= {server[0]}
    assert ops == [(f"op-{number}",) for number in range(59)]
    assert 20 < max(numbers) <= 22


def test_replaced_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(RAW)
    with path.open("rb") as file, Recording(file, str(path), grows=True) as recording:
        until(lambda: recording.path.stat().st_size == len(RAW), "the copy of the file")
        path.write_bytes(RAW[:1000])
        assert recording.ended.wait(10)
        assert recording.error == f"{path}: became shorter; was it replaced by another file?"


def test_compressed_files_cannot_be_followed() -> None:
    assert "a compressed file cannot be followed" in follow(DATA / "g3-2026.8.0.pcap.gz").stderr


@pytest.mark.parametrize("arguments", [["--follow", "a.pcap"], ["summary", "a.pcap", "--follow"]])
def test_the_option_that_is_gone_names_its_replacement(arguments: list[str]) -> None:
    result = CliRunner().invoke(wire, arguments)
    assert result.exit_code == 2
    assert (
        result.stderr == "daskwire: --follow is gone: 'daskwire live FILE' shows a capture while it grows\n"
    )


def test_pcapng_section_without_magic_is_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "two.pcapng"
    path.write_bytes(pcapng(PACKETS[:100]) + block("<", 0x0A0D0D0A, bytes(16)) + pcapng(PACKETS[100:]))
    result = CliRunner().invoke(wire, [str(path)])
    assert result.exit_code == 0 and "damaged at byte" in result.stderr and "100 packets" in result.stdout
