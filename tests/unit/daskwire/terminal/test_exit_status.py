"""The exit status of a command that does not come to its end: 1 always means "problems found"."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.daskwire.build import DATA

G3 = str(DATA / "g3-2026.8.0.pcap.gz")
CRASH = """
import sys
from daskwire.analysis.problems import detect
detect.completeness = None
"""


@pytest.mark.parametrize("program", ["daskwire", "dasklab"])
def test_error_in_daskwire_itself_has_a_status_of_its_own(tmp_path: Path, program: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(CRASH)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", program, *(["wire"] if program == "dasklab" else []), "problems", G3]
    result = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=60
    )
    assert result.returncode == 70 and "TypeError" in result.stderr


def test_reader_that_leaves_finds_no_problems() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "daskwire", "problems", G3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141 and process.stderr.read() == b""
