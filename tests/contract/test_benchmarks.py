"""Each program, a file in ``benchmarks/``, says at once what it does, and has a smallest form."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

from benchmarks.support.command_line import CANNOT_RUN

PROGRAMS = sorted((ROOT / "benchmarks").glob("*.py"))
TIMEOUT_S = 500  # on a busy machine; some seconds on a quiet one
OWN = {"benchmarks", "benchmarks.support", "benchmarks.support.command_line"}


def imported(*words: str) -> tuple[set[str], str]:
    """Return the modules outside of the standard library that a Python imports, and what it prints."""
    words = (sys.executable, "-X", "importtime", *words)
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    names = set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))
    known = sys.stdlib_module_names | {"org"}  # which `copy` looks for, in case that Java runs it
    return {name for name in names if name.partition(".")[0] not in known}, done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_help_imports_nothing_slow(program: Path) -> None:
    names, printed = imported(str(program), "--help")
    assert names - imported("-c", "pass")[0] == OWN
    assert f"python benchmarks/{program.name}" in printed and "--smallest" in printed


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_smallest_form_ends_well(program: Path, tmp_path: Path) -> None:
    """It runs in a process group of its own, which Ctrl-C ends: a kill would leave namespaces behind."""
    words = [sys.executable, str(program), "--smallest"]
    environment = os.environ | {"DASKLAB_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        pytest.fail(f"not done after {TIMEOUT_S} s: {printed[-1000:]}")
    if process.returncode == CANNOT_RUN:
        pytest.skip(printed.splitlines()[-1])
    assert process.returncode == 0, printed[-3000:]
