"""Starting, identifying and ending processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from minipve.base import process
from minipve.base.errors import MachineError, UserError


def test_missing_program_is_an_error_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "which", lambda _tool: None)
    with pytest.raises(UserError) as refused:
        process.require_tools("mke2fs", "mmdebstrap", "debugfs")
    assert refused.value.message == "not installed: mke2fs, mmdebstrap, debugfs"
    assert refused.value.hint == "apt install e2fsprogs mmdebstrap"


def test_process_is_identified_by_its_start_time(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    process.remember(child.pid, tmp_path / "pid")
    assert process.recall(tmp_path / "pid") == child.pid
    (tmp_path / "other").write_text(f"{child.pid} 1\n")
    assert process.recall(tmp_path / "other") is None
    process.end(child.pid, timeout_s=5)
    assert process.recall(tmp_path / "pid") is None
    child.returncode = 0  # reaped by `end`
    process.end(child.pid)  # ending it again has no effect


def test_process_that_ignores_sigterm_is_killed() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        process.end(child.pid, timeout_s=0.2)
    assert child.poll() is not None or process.start_time(child.pid) is None
    child.returncode = -9


def test_failed_command_is_an_error_with_its_last_line() -> None:
    with pytest.raises(MachineError, match=r"command 'sh -c echo no >&2; exit 3' failed: exit code 3 \(no\)"):
        process.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(MachineError, match="failed: got timeout"):
        process.run(["sleep", "9"], timeout_s=0.05)
