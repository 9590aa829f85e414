"""The API calls that ``dasklab up`` makes for a new lab: a change of them is seen here first.

The lists in ``tests/data/up_calls`` are what commit da62e21 planned, before the roles were rewritten.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

CALLS = Path(__file__).parents[2] / "data" / "up_calls"


def planned(output: str) -> list[str]:
    """Return the calls that a plan has printed, without reasons and the name of the image."""
    lines = re.findall(r"^  ((?:POST|PUT|DELETE|UPLOAD) /.*?)  #", output, re.MULTILINE)
    return [re.sub(r"\bdebian-[0-9a-f]{12}\b", "IMAGE", line) for line in lines]


@pytest.mark.parametrize("guests", ["vm", "container"])
def test_a_new_lab_needs_the_same_calls_as_before(guests: str, tmp_path: Path) -> None:
    (tmp_path / "guests").write_text(guests)  # what `up --guests` leaves there
    environment = {**os.environ, "DASKLAB_STATE": str(tmp_path), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    process = subprocess.run(
        [sys.executable, "-m", "dasklab", "plan"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert planned(process.stdout) == (CALLS / f"{guests}.txt").read_text().splitlines()
