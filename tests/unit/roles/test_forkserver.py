"""A program is a fork of a process that has imported what it needs, and nobody sees the difference."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

from tests.waiting import PATIENCE_S

FOLDER = ROOT / "roles" / "dask" / "files"
ASK = "import sys, dasklab_forkserver as f; sys.exit(f.ask(sys.argv[2:], sys.argv[1]))"
SERVE = "import dasklab_forkserver as f; f.IDLE_S = {idle_s}; f.execute(f.serve(['colorsys']))"
TELLS = """
import json, os, sys
told = [sys.argv, os.getcwd(), os.environ.get("WORD"), __name__, "colorsys" in sys.modules]
print(json.dumps([*told, os.getppid(), os.getsid(0), os.getpid()]), flush=True)
print("said", file=sys.stderr)
import beside
"""

Ask = Callable[..., "subprocess.Popen[str]"]


def started(path: Path, idle_s: float = 60, **more: str) -> subprocess.Popen[bytes]:
    """The process, with its socket where systemd hands it over."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with listener:
        argv = ["bash", "-c", f'exec "$0" "$@" 3<&{listener.fileno()}', sys.executable, "-c"]
        served = [*argv, SERVE.format(idle_s=idle_s)]
        return subprocess.Popen(served, pass_fds=[listener.fileno()], env=environment(**more))


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FOLDER), **more}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "beside.py").write_text("import sys; sys.exit(7)")
    process = started(tmp_path / "socket")
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def ask(tmp_path: Path, server: subprocess.Popen[bytes]) -> Iterator[Ask]:
    asked = []

    def start(*argv: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", ASK, str(tmp_path / "socket"), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(**more),
        )
        asked.append(process)
        return process

    yield start
    for process in asked:
        process.kill()
        process.communicate()


def test_a_program_has_who_asked_s_arguments_files_and_status(
    ask: Ask, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = ask(str(tmp_path / "tells.py"), "--size", "3 x 3", WORD="blüte")
    printed, errors = process.communicate(timeout=PATIENCE_S)
    argv, cwd, word, name, imported, parent, session, pid = json.loads(printed)
    assert (argv, cwd, word) == ([str(tmp_path / "tells.py"), "--size", "3 x 3"], str(tmp_path), "blüte")
    assert (name, imported, parent, session) == ("__main__", True, server.pid, pid)
    assert (errors, process.returncode) == ("said\n", 7), "what it imports from beside it ends it with 7"


def test_a_module_is_run_as_python_does_it(ask: Ask) -> None:
    printed, _ = ask("-m", "calendar", "2026", "11").communicate(timeout=PATIENCE_S)
    assert printed.splitlines()[0].strip() == "November 2026"


def test_who_asked_ends_and_so_does_what_was_asked_for(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    one, other = ask(str(tmp_path / "waits.py")), ask(str(tmp_path / "waits.py"))
    assert one.stdout is not None and other.stdout is not None
    pid, others = int(one.stdout.readline()), int(other.stdout.readline())
    one.send_signal(signal.SIGTERM)
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
    assert Path(f"/proc/{others}").exists() and other.poll() is None
    os.kill(others, signal.SIGKILL)
    assert other.wait(PATIENCE_S) == 128 + signal.SIGKILL


def test_a_process_that_ends_without_a_word_is_a_failure(
    ask: Ask, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (tmp_path / "waits.py").write_text("import time; print(flush=True); time.sleep(60)")
    process = ask(str(tmp_path / "waits.py"))
    assert process.stdout is not None
    process.stdout.readline()
    server.kill()
    assert process.wait(PATIENCE_S) == 1
    _, errors = process.communicate()
    assert (
        errors
        == "dasklab_forkserver: the process that has imported Dask ended: journalctl -u dasklab-forkserver\n"
    )


def test_left_alone_it_ends(tmp_path: Path) -> None:
    assert started(tmp_path / "socket", idle_s=0.1).wait(PATIENCE_S) == 0


def test_it_says_when_it_has_imported(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(PATIENCE_S)
        systemd.bind(str(tmp_path / "notify"))
        started(tmp_path / "socket", idle_s=0.1, NOTIFY_SOCKET=str(tmp_path / "notify")).wait(PATIENCE_S)
        assert systemd.recv(64) == b"READY=1"
