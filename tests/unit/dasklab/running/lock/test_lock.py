"""The lock of a lab, where its holders end while somebody looks at them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.running.lock import lock
from dasklab.running.lock.lock import LabLock

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""
DEAD_PID = 2**22 + 1  # above the kernel's highest


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock ``lab.lock``, whose owner is dead."""
    file = tmp_path / "lab.lock"
    file.write_text(f"{DEAD_PID} dasklab up\n")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_orphan_that_ends_by_itself_does_not_keep_the_lab_busy(
    orphan: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_orphan(_: float) -> None:
        orphan.kill()
        orphan.wait()

    monkeypatch.setattr(lock.time, "sleep", end_orphan)
    lab_lock = LabLock([tmp_path / "lab.lock"])
    lab_lock.acquire()
    assert len(lab_lock.descriptors) == 1
    lab_lock.release()


def test_orphan_is_ended(orphan: subprocess.Popen[str], tmp_path: Path) -> None:
    lab_lock = LabLock([tmp_path / "lab.lock"])
    assert lab_lock.acquire()
    deadline = time.monotonic() + 10
    while orphan.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert orphan.returncode is not None
    lab_lock.release()
