"""benchmarks/minipve_clients.py says in one line why it cannot run."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import minipve_clients
from tests.contract.lab import tiny
from tests.waiting import PATIENCE_S

PROGRAM = Path(minipve_clients.__file__)


def test_port_that_is_taken(tmp_path: Path) -> None:
    if not tiny.BUSYBOX.exists():
        pytest.skip("needs busybox")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [sys.executable, PROGRAM, "--folder", tmp_path, "--only", "pve-cli", "--port", str(port)]
        process = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert process.returncode == 2
    assert re.fullmatch(rf"minipve_clients: .*port {port}: Address already in use.*\n", process.stderr)


@pytest.mark.parametrize(("program", "only"), [("busybox", "pve-cli"), ("npm", "npm")])
def test_program_that_is_missing(
    program: str,
    only: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = tiny.BUSYBOX.with_name("no-such-busybox") if program == "busybox" else tiny.BUSYBOX
    monkeypatch.setattr(tiny, "BUSYBOX", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        minipve_clients.main(Namespace(folder=tmp_path, only=only))
    error = capsys.readouterr().err
    assert re.fullmatch(rf"minipve_clients: .*{program} is missing: apt install .*\n", error)
