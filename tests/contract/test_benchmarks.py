"""Each program, a file in ``benchmarks/``, says at once what it does, and has a smallest form."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

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
