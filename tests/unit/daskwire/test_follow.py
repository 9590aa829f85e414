"""``--follow`` on damaged, unchanged and replaced files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daskwire import WireError
from daskwire.follow import Follower
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import DATA, block, golden_bytes, packets_of, pcap, pcapng

RAW = golden_bytes("g3-2026.8.0")
PACKETS = packets_of(RAW)


def follow(path: Path) -> Result:
    return CliRunner().invoke(wire, ["--follow", str(path)], catch_exceptions=False)


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
    assert result.exit_code == 1 and len(result.stdout.splitlines()) == 1  # with what precedes the damage
    assert result.stderr.startswith(f"daskwire: {path}: damaged at byte {at}: no ")
    assert len(result.stderr.splitlines()) == 1


def test_follow_waits_for_an_incomplete_record(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(RAW[:-7])
    follower = Follower(path)
    output = follower.poll()
    follower.check()
    path.write_bytes(RAW)
    assert len(output) > 100 and len(follower.poll()) >= 0
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


def test_replaced_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    path.write_bytes(RAW)
    follower = Follower(path)
    follower.poll()
    path.write_bytes(RAW[:1000])
    with pytest.raises(WireError, match="became shorter"):
        follower.poll()


def test_follow_rejects_compressed_files_and_other_options() -> None:
    packed = DATA / "g3-2026.8.0.pcap.gz"
    assert "a compressed file cannot be followed" in follow(packed).stderr
    result = CliRunner().invoke(wire, ["--follow", "--json", str(packed)])
    assert result.stderr == "daskwire: --follow cannot be combined with other options\n"


def test_pcapng_section_without_magic_is_reported_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "two.pcapng"
    path.write_bytes(pcapng(PACKETS[:100]) + block("<", 0x0A0D0D0A, bytes(16)) + pcapng(PACKETS[100:]))
    result = CliRunner().invoke(wire, [str(path)])
    assert result.exit_code == 0 and "damaged at byte" in result.stderr and "100 packets" in result.stdout
