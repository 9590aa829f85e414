"""The scenario that is derived from a stored trial keeps its invariants."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.predict.calibrate import calibrate
from dasklab.predict.whatif import parse, scenario
from dasklab.results.run import Trial

from tests.unit.dasklab.stored_run import TRIAL, previous_run

pytest.importorskip("distributed")


def test_scenario_of_a_stored_trial_keeps_its_invariants(tmp_path: Path) -> None:
    stored = Trial(previous_run(tmp_path) / TRIAL)
    trial, calibration = stored.requested, calibrate(stored)
    for change in ("workers=1", "workers=5", "lab_nic_rate_mbit=50"):
        scenario(trial, calibration, parse((change,)), seed=0).check()
