"""The run that is stored in tests/data/run, unpacked."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from dasklab.model.files import CaptureReport

from tests.unit.dasklab.conftest import capture_report

STORED = Path(__file__).parents[2] / "data" / "run" / "baseline.tar.xz"
TRIAL = "1-01-baseline"


def previous_run(results: Path) -> Path:
    """Unpack the run, with a capture's report; return its folder."""
    run = results / "baseline" / "20251123T000000Z"
    with tarfile.open(STORED) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(run)
    (run / TRIAL / CaptureReport.FILE).write_text(json.dumps(capture_report(tiers=[])))
    return run
