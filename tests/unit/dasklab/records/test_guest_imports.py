"""What records runs on guests, which have the standard library, Dask and what Dask requires."""

from __future__ import annotations

import subprocess
import sys

MISSING = ("pydantic", "pandas", "numpy", "pyarrow", "scipy")
PROGRAM = f"""
import sys
for name in {MISSING}:
    sys.modules[name] = None  # importing it fails
import dasklab.records.session
import dasklab.records.recorder.worker
"""


def test_session_needs_nothing_that_a_guest_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
