"""The tutorial of what-ifs as it is written: a record, its simulations, and its twin of containers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.results.run import open_run
from minipve.base.paths import Paths

from tests import tutorials
from tests.e2e.conftest import BIN

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for a home: sockets of ssh have paths of at most 107 bytes, and pytest's folders are long."""
    with tempfile.TemporaryDirectory(prefix="twin-") as folder:
        yield Path(folder)


def test_tutorial_of_what_ifs_runs_as_written(short_folder: Path) -> None:
    """The guests' image takes minutes to build: the tutorial's user shares the cache of the one who tests."""
    state, lab = short_folder / "home" / "state", short_folder / "work" / "mytwin"
    try:
        tutorials.run("what-if", short_folder, {"MINIPVE_CACHE": str(Paths.of().cache)}, timeout_s=1700)
    finally:
        if (state / "dasklab" / "mytwin").exists():  # what a failed page leaves
            environment = {**os.environ, "XDG_STATE_HOME": str(state)}
            subprocess.run([str(BIN / "dasklab"), "destroy", "--yes"], cwd=lab, env=environment, check=True)
    [folder] = (lab / "results" / "twin").glob("*T*Z")
    trials = open_run(folder).trials
    assert [trial.result.status for trial in trials] == ["ok", "ok"]
    page = (folder.parent / "report" / "report.html").read_text()
    assert "Record, simulation and twin" in page and page.count("The twin took ") == 1
    assert all(f"<td>{what}</td>" in page for what in ("record", "record, simulated", "twin"))
    timings = [json.loads((trial.folder / "timings.json").read_text()) for trial in trials]
    assert all(content["check"]["ok"] and content["workload"] == "recorded" for content in timings)
    for content in timings:
        for sample in content["samples"]:
            # 24 parts of 0.2 s on two workers, then a merge of 1 s; other tests use CPUs of this machine
            assert 3.4 < sample["duration_s"] < 8
