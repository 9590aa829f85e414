"""Two runs are compared only if what computed was the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab.comparison import runs
from dasklab.errors import LabError
from dasklab.results.run import Run
from dasklab.results.statistics import identity
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab, Json

Measure = Callable[..., driver.ActiveRun]


def run_on_kvm(trial: Json, files: Json) -> int:
    files["hosts.json"]["hypervisor"]["accel"] = "kvm"
    return 0


def run_with_bbr(trial: Json, files: Json) -> int:
    files["configured.json"]["hosts"]["worker-1"]["congestion_control"] = "bbr"
    return 0


@pytest.fixture
def old(measured: Measure) -> Path:
    return measured(FakeLab(), "old").stored.folder


def test_cells_of_equal_runs_have_a_ratio_of_one(old: Path, measured: Measure) -> None:
    new = measured(FakeLab(), "new").stored.folder
    changes = {
        (change.metric, change.cell): change for change in runs.compare_runs(Run(old), Run(new)).changes
    }
    assert changes["compute_s", "delay_ms=50"].ratio.value == pytest.approx(1, rel=0.05)
    assert not any(change.is_shown for change in changes.values())


def test_runs_on_different_accelerators_are_not_comparable(old: Path, measured: Measure) -> None:
    new = measured(FakeLab(spoil=run_on_kvm), "new").stored.folder
    with pytest.raises(LabError, match="not comparable: accelerator tcg and kvm"):
        runs.compare_runs(Run(old), Run(new))
    assert runs.compare_runs(Run(old), Run(new), anyway=True)


def test_runs_with_different_congestion_control_are_not_comparable(old: Path, measured: Measure) -> None:
    new = measured(FakeLab(spoil=run_with_bbr), "new").stored.folder
    with pytest.raises(LabError, match="not comparable: congestion control cubic and bbr, cubic"):
        runs.compare_runs(Run(old), Run(new))


def test_versions_of_a_run_are_those_of_its_baseline(measured: Measure) -> None:
    """A trial with another version may come first."""

    def set_version(trial: Json, files: Json) -> int:
        files["timings.json"]["versions"]["dask"] = "2026.8.0" if trial["baseline"] else "2024.8.0"
        return 0

    run = measured(FakeLab(spoil=set_version))
    assert identity.identity(run.opened_again())["dask"] == "2026.8.0"
