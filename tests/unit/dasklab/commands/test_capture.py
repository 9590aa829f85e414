"""``dasklab capture`` runs tcpdump on the host, passes on its bytes, and ends it with the connection."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dasklab.cli import main

from tests.unit.dasklab.commands.fake_ssh import FakeSsh, host
from tests.waiting import PATIENCE_S

__all__ = ["host"]
# It prints its options, then runs until a signal ends it, and says so.
TCPDUMP = """#!/bin/sh
echo "$*"
echo $$ >"$FAKE_SSH/tcpdump.pid"
trap 'echo flushed; exit 0' TERM
while :; do sleep 0.05; done
"""
AT_ONCE = """#!/bin/sh
printf '%s\\n' "$@"
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["capture", *words])


def test_file_has_what_tcpdump_wrote_of_the_link_under_test(host: FakeSsh, tmp_path: Path) -> None:
    host.program("tcpdump", AT_ONCE)
    file = tmp_path / "worker.pcap"
    result = run("worker-1", "-w", str(file), "--snaplen", "96", "--", "tcp", "port", "8786", "or", "arp")
    assert (result.exit_code, result.output) == (0, "")
    options = ["-n", "-i", "eth1", "-s", "96", "-U", "-w", "-"]
    assert file.read_text().splitlines() == [*options, "tcp port 8786 or arp"]


def test_interface_can_be_chosen(host: FakeSsh, tmp_path: Path) -> None:
    host.program("tcpdump", AT_ONCE)
    file = tmp_path / "worker.pcap"
    assert run("worker-1", "-w", str(file), "--interface", "eth0").exit_code == 0
    assert file.read_text().split()[:3] == ["-n", "-i", "eth0"]
    assert not (host.folder / "steps").exists()  # the guest program need not be asked


def test_capture_ends_when_its_time_is_up(host: FakeSsh, tmp_path: Path) -> None:
    host.program("tcpdump", TCPDUMP)
    file = tmp_path / "worker.pcap"
    assert run("worker-1", "-w", str(file), "--for", "1").exit_code == 0
    assert file.read_text().splitlines()[-1] == "flushed"


def test_ctrl_c_ends_the_capture_on_the_host_and_keeps_what_came(host: FakeSsh) -> None:
    host.program("tcpdump", TCPDUMP)
    pid_file = host.folder / "tcpdump.pid"
    program = (
        "import sys; from dasklab.console.lab import guest_program; guest_program.PROGRAM = sys.argv.pop(1);"
    )
    program += "from dasklab.cli import main; main()"
    argv = [sys.executable, "-c", program, str(host.guest), "capture", "worker-1", "-w", "-"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not pid_file.exists() or not pid_file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output.splitlines()[-1]) == (0, "flushed")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_failures_are_named(host: FakeSsh, tmp_path: Path) -> None:
    host.program("tcpdump", "#!/bin/sh\nexit 3\n")
    failed = run("worker-1", "-w", str(tmp_path / "a.pcap"))
    assert (failed.exit_code, "worker-1: the message above says why" in failed.output) == (1, True)
    nowhere = run("worker-1", "-w", str(tmp_path / "no" / "a.pcap"))
    assert nowhere.exit_code == 2 and "cannot be written" in nowhere.output
