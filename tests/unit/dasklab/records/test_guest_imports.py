"""What records a cluster runs on a client that has the standard library, Dask and what Dask requires."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from dasklab.paths import SHARE

MISSING = ("pydantic", "pandas", "numpy", "pyarrow", "scipy")
PROGRAM = f"""
import sys
sys.path.insert(0, sys.argv[1])
for name in {MISSING}:
    sys.modules[name] = None  # importing it fails
import dasklab.records.session
import dasklab.records.recorder.worker
assert dasklab.__file__.startswith(sys.argv[1])
"""


def test_files_that_the_role_copies_are_enough_to_record(tmp_path: Path) -> None:
    files = yaml.safe_load((SHARE / "roles" / "workload" / "vars" / "main.yml").read_text())
    for name in files["workload_recorder"]:
        target = tmp_path / "dasklab" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SHARE / "lab" / "dasklab" / name, target)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
