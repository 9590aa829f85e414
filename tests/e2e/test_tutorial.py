"""The tutorial of the lab works as it is written, from an empty folder to a lab that is gone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from minipve.paths import Paths

from tests import tutorials

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a path that is short enough for ssh, which has sockets in this user's home."""
    with tempfile.TemporaryDirectory(prefix="tutorial") as path:
        yield Path(path)


def test_lab_tutorial_runs_as_written(folder: Path) -> None:
    """The image takes minutes to build: this user shares the cache of the one who tests."""
    shared = {"MINIPVE_CACHE": str(Paths.of().cache)}
    tutorials.run("lab", folder, shared, timeout_s=1700)
    assert list((folder / "work/mylab/results/slow").rglob("report.html"))
