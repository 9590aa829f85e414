"""A test session leaves no process behind, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

from tests.waiting import PATIENCE_S, until

SESSION = """
import time
from pathlib import Path

import pytest

from tests.contract.conftest import serve


@pytest.fixture
def running(tmp_path):
    endpoint = serve(tmp_path)
    yield endpoint
    Path({ready!r}).with_suffix(".ending").touch()
    time.sleep(600)  # stands for destroying a lab of five machines, which takes longer than xdist waits


@pytest.mark.parametrize("number", range(2))
def test_with_a_guest(running, number):
    running.create(100)
    running.done(running.vm(100).status.start.post())
    Path({ready!r}).with_suffix(f".{{number}}").touch()
    time.sleep(600)
"""


def running(folder: Path) -> dict[int, str]:
    """Return processes whose command line or environment contains a folder: PID -> command line."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if line and (str(folder) in line or str(folder) in environment):
            processes[int(entry.name)] = line[:200]
    return processes


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, because the paths of guests' sockets are limited to 107 characters."""
    with tempfile.TemporaryDirectory(prefix="left-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
@pytest.mark.parametrize("workers", [0, 2])
def test_no_process_is_left(real: bool, short: Path, workers: int, number: signal.Signals) -> None:
    if real:
        pytest.skip("starts its own endpoint, but the environment names a real Proxmox VE")
    file, ready = short / "test_session.py", short / "ready"
    file.write_text(SESSION.format(ready=str(ready)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "tests.contract.conftest"]
    command += ["-p", "no:cacheprovider", f"--basetemp={short / 'inner'}", f"--rootdir={ROOT}"]
    command += [f"-n{workers}", str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    log = (short / "log").open("w+")
    session = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
    )
    try:
        expected = [ready.with_suffix(f".{test}") for test in range(max(1, workers))]
        until(lambda: all(path.exists() for path in expected) or session.poll() is not None, "the guests")
        assert session.poll() is None, (short / "log").read_text()
        guests = [line for line in running(short).values() if "qemu-system" in line]
        assert len(guests) == len(expected)
        os.killpg(session.pid, number)  # as a terminal sends Ctrl-C: to the whole foreground group
        if number == signal.SIGINT and not workers:
            until(ready.with_suffix(".ending").exists, "the fixture's end")
            os.killpg(session.pid, number)  # again, as users do when a fixture takes long
        session.wait(PATIENCE_S)
        until(lambda: not running(short), "all processes to end")
    finally:
        log.close()
        for pid in running(short):
            os.kill(pid, signal.SIGKILL)
        session.wait()
