"""Files, directories, pipes and standard input give the same messages; foreign formats are named."""

from __future__ import annotations

import bz2
import fcntl
import lzma
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire import WireError, open_capture
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import DATA, golden_bytes, packets_of, pcap, pcapng

RAW = golden_bytes("g3-2026.8.0")
PACKETS = packets_of(RAW)
GZ = DATA / "g3-2026.8.0.pcap.gz"
DASKWIRE = [sys.executable, "-m", "daskwire"]
HEADLINE = "133 Dask messages (G3, distributed 2026.8.0) in 9 of 9 connections"


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([*DASKWIRE, *arguments], capture_output=True, check=False, timeout=60, **options)
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode(), result.stderr.decode()
    )


@pytest.mark.parametrize("content", [RAW, pcapng(PACKETS), GZ.read_bytes()], ids=["pcap", "pcapng", "gzip"])
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read_from_a_pipe(name: str, content: bytes) -> None:
    result = run(name, input=content)
    assert result.returncode == 0 and HEADLINE in result.stdout and result.stderr == ""


def test_standard_input_is_read_from_a_file() -> None:
    with GZ.open("rb") as file:
        assert HEADLINE in run("-", stdin=file).stdout


def test_options_that_read_the_capture_twice_work_on_a_pipe() -> None:
    arguments = ("messages", "--since", "2", "--until", "3", "--json")
    assert run(*arguments, "-", input=RAW).stdout == run(*arguments, str(GZ)).stdout


def test_errors_name_standard_input() -> None:
    result = run("-", input=b"")
    assert (result.returncode, result.stderr) == (3, "daskwire: standard input: empty\n")
    cut = run("-", input=RAW[:-7])
    assert cut.returncode == 0 and cut.stderr.startswith("warning: standard input: truncated: ")


def feed(fifo: Path, content: bytes) -> threading.Thread:
    """Write to a FIFO in small parts, as a capturing program does."""

    def write() -> None:
        with fifo.open("wb") as file:
            for at in range(0, len(content), 60_000):
                file.write(content[at : at + 60_000])
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_fifo_is_read_until_its_writer_closes_it(tmp_path: Path) -> None:
    fifo = tmp_path / "capture.fifo"
    os.mkfifo(fifo)
    writer = feed(fifo, RAW)
    assert len(open_capture(fifo).messages) == 133
    writer.join()


def wait_until_read(pipe: int) -> None:
    """Wait until the reader of a pipe has read all of it, and a bit longer."""
    deadline = time.monotonic() + 60
    while int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)


@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupt_ends_the_recording_not_the_decoding(interrupts: int) -> None:
    """After the first one, the rest of the pipe is read; after the second one, no more."""
    pipe = subprocess.PIPE
    half = len(RAW) // 2
    with subprocess.Popen([*DASKWIRE, "-"], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(RAW[:half])
        process.stdin.flush()
        for _ in range(interrupts):
            wait_until_read(process.stdin.fileno())
            process.send_signal(signal.SIGINT)
        if interrupts == 2:
            process.wait(60)  # although the pipe is still open
        stdout, _ = process.communicate(RAW[half:] if interrupts == 1 else None)
    assert process.returncode == 0 and b" Dask messages (G3, distributed 2026.8.0)" in stdout
    assert (HEADLINE.encode() in stdout) == (interrupts == 1)


def test_terminal_as_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("daskwire.decoder.file.source.sys.stdin", Terminal())
    with pytest.raises(WireError, match=r"standard input is a terminal; .* tcpdump -w - \| daskwire -"):
        open_capture("-")


def test_directory_stands_for_its_captures(tmp_path: Path) -> None:
    (tmp_path / "capture.pcap").write_bytes(pcap(PACKETS[:100]))
    (tmp_path / "capture.pcap1").write_bytes(pcap(PACKETS[100:200]))
    (tmp_path / "rest.pcapng").write_bytes(pcapng(PACKETS[200:]))
    (tmp_path / "notes.txt").write_text("not a capture")
    capture = open_capture(tmp_path)
    assert [Path(file.path).name for file in capture.files] == [
        "capture.pcap",
        "capture.pcap1",
        "rest.pcapng",
    ]
    assert len(capture.messages) == 133


def test_directory_without_captures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"a directory without captures \(\*\.pcap, "):
        open_capture(tmp_path)


@pytest.mark.parametrize(("suffix", "pack"), [("xz", lzma.compress), ("bz2", bz2.compress)])
def test_xz_and_bzip2_are_read(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"capture.pcap.{suffix}"
    packed = pack(pcap(PACKETS * 8))  # more than a block of bzip2
    path.write_bytes(packed)
    assert open_capture(path).tally.packets == 8 * len(PACKETS)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    assert 0 < open_capture(path).tally.packets < 8 * len(PACKETS)
    path.write_bytes(packed[:12])
    with pytest.raises(WireError, match="nothing can be decompressed"):
        open_capture(path)


@pytest.mark.parametrize(("content", "message"), [
    (b"snoop\0\0\0\0\0\0\2", "this is a snoop capture; convert it: editcap -F pcapng {path} {path}.pcapng"),
    (b"GMBU\0\2", "this is a Microsoft Network Monitor capture; convert it: editcap -F pcapng {path} "),
    (b"\x34\xcd\xb2\xa1\2\0\4\0", "this is a modified pcap; convert it: editcap -F pcapng {path} "),
    (b"\x04\x22\x4d\x18xyz", "this is an lz4 file; decompress it: lz4 -d {path}"),
    (bytes(257) + b"ustar", "this is a tar archive; extract it: tar -xf {path}"),
    (b"12:00:01.123456 IP 10.0.0.1.8786 > 10.0.0.2.40000: Flags [S]", "the printed output of tcpdump; "),
    (b'[\n  {\n    "_index": "packets"', "this is the JSON output of tshark; record packets with tcpdump -w"),
    (b"plain text", "{path}: neither pcap nor pcapng"),
])  # fmt: skip
def test_foreign_format_is_named_with_its_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(content)
    result = CliRunner().invoke(wire, [str(path)])
    assert result.exit_code == 3 and message.format(path=path) in result.stderr
    assert len(result.stderr.splitlines()) == 1
