"""The reason why a container does not start: from LXC's log, or from what lxc-start says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from minipve.guests.lxc.power import failure_cause

LOG = """\
lxc-start 101 20260101000000.000 DEBUG    conf - ../src/lxc/conf.c:run_buffer:300 - Script exec /x
lxc-start 101 20260101000000.001 ERROR    conf - ../src/lxc/conf.c:setup_utsname:1 - No such file: /y
lxc-start 101 20260101000000.002 ERROR    start - ../src/lxc/start.c:lxc_spawn:2 - Failed to spawn
"""
STDERR = """\
lxc-start: 9: ../src/lxc/confile.c: set_config: 164 Invalid argument - Unsupported config key "lxc.x"
lxc-start: 9: ../src/lxc/parse.c: for_each_line: 129 Failed to parse config file "/y" at line "lxc.x = 1"
Failed to load config for 9
lxc-start: 9: ../src/lxc/tools/lxc_start.c: main: 240 Failed to create lxc_container
"""
CAUSE = (
    'Invalid argument - Unsupported config key "lxc.x"; Failed to parse config file "/y" at line "lxc.x = 1"'
)


def test_first_error_of_the_log_is_the_cause() -> None:
    assert failure_cause(LOG, STDERR) == "No such file: /y"


def test_standard_error_counts_if_the_log_is_empty() -> None:
    assert failure_cause("", STDERR) == CAUSE
    assert failure_cause("", "lxc-start: cannot open shared object\n") == "cannot open shared object"


def test_silent_failure_has_no_cause() -> None:
    assert failure_cause("", "\n") == ""


def test_installed_lxc_start_says_so_too(tmp_path: Path) -> None:
    if not (program := shutil.which("lxc-start")):
        pytest.skip("LXC is not installed")
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "config").write_text("lxc.x = 1\n")
    words = [program, "-d", "-C", "-P", str(tmp_path), "-n", "9"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode
    assert "lxc.x" in failure_cause("", done.stderr)
