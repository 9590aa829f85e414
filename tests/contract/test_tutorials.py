"""Every command of a tutorial runs as it is written, and prints what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CASES = [
    pytest.param(command, expected, id=f"{page.stem}: {command[:50]}")
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    for block in BLOCK.findall(page.read_text())
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
]


def test_there_are_commands() -> None:
    assert len(CASES) >= 3


@pytest.mark.parametrize(("command", "expected"), CASES)
def test_command_prints_what_the_page_shows(command: str, expected: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stdout
    assert doctest.OutputChecker().check_output(expected, process.stdout, ALIKE), process.stdout
