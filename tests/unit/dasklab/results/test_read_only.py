"""A run that cannot be written to, such as a colleague's on a share, is explained and reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.results import pack

from tests.unit.dasklab.stored_run import TRIAL, previous_run
from tests.waiting import PATIENCE_S

SCRIPT = """
mount --bind {run} {run} && mount -o remount,bind,ro {run} || exit 77
{python} -m dasklab explain {run}/{trial} && {python} -m dasklab report {run} &&
    {python} -m dasklab results show {run}
"""


@pytest.mark.parametrize("is_packed", [False, True])
def test_read_only_run_is_explained_and_reported(tmp_path: Path, is_packed: bool) -> None:
    run = previous_run(tmp_path / "share")
    read_only, name = run, run
    if is_packed:
        read_only, name = tmp_path / "packs", tmp_path / "packs" / "run.zip"
        pack.pack(run, name)
    before = sorted(read_only.rglob("*"))
    script = SCRIPT.replace("{run}/{trial}", f"{name}/{TRIAL}").replace("report {run}", f"report {name}")
    script = script.replace("show {run}", f"show {name}").format(run=read_only, python=sys.executable)
    process = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"DASKLAB_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if process.returncode == 77 or "unshare" in process.stderr:
        pytest.skip(f"no namespaces here: {process.stderr}")
    assert process.returncode == 0, process.stderr
    assert sorted(read_only.rglob("*")) == before
    assert (tmp_path / f"baseline-{run.name}-report" / "report.html").exists()
    assert "Threads over time: cache/" in process.stdout
