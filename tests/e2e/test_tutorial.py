"""The tutorial of the lab works as it is written, from an empty folder to a lab that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from minipve.paths import Paths

from tests import tutorials

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]


def test_lab_tutorial_runs_as_written(tmp_path: Path) -> None:
    """The image takes minutes to build: this user shares the cache of the one who tests."""
    shared = {"MINIPVE_CACHE": str(Paths.of().cache)}
    tutorials.run("lab", tmp_path, shared, timeout_s=1700)
    assert (tmp_path / "work/mylab/results/slow/report/report.html").exists()
