"""ObservedFaults: drawn by the seed and written down, judged by what was seen, allowed for and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dasklab.model.experiment import Experiment
from dasklab.model.files import Result
from dasklab.model.settings import Workload
from dasklab.model.simulated import SimulatedSetup
from dasklab.results.storage import store
from dasklab.running import driver, trials

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

KILL = {"host": "worker-2", "does": "kill", "at_s": [1, 3]}
CUT = {"host": "worker-1", "does": "cut", "at_s": 1, "for_s": 3}
RESTART = {"host": "worker-3", "does": "restart", "at_s": 1, "for_s": 2}


def experiment(*faults: Json) -> Experiment:
    levels: Json = {"none": {}, "faulty": {"faults": list(faults)}}
    return Experiment.model_validate(
        {
            "title": "T",
            "question": "Q?",
            "metrics": {"compute_s": None},
            "factors": {"fault": {"levels": levels}},
            "runs": 5,
            "blocks": 1,
        }
    )


def planned(**choice: Any) -> dict[int, float]:
    """Block -> when the fault comes."""
    asked = experiment(KILL).model_copy(update={"blocks": 3})
    every = trials.plan("x", asked, SETUP, **choice)
    return {trial.block: float(trial.faults[0].at_s) for trial in every if trial.faults}


def test_a_moment_is_drawn_by_seed_and_block_and_again_for_the_cell_alone() -> None:
    drawn = planned(seed=7)
    assert len(set(drawn.values())) == 3
    assert all(1 <= at_s <= 3 for at_s in drawn.values())
    assert planned(seed=7, only="fault=faulty") == drawn
    assert planned(seed=8) != drawn


def verdict(
    tmp_path: Path, faults: list[Json], seen: Json | None, workers: int = 3, failed: str = ""
) -> tuple[str, tuple[str, ...]]:
    """Of the trial with the faults, in a lab where this was seen and so many workers were left."""

    def spoil(trial: Json, answered: Json) -> int:
        if not trial["faults"]:
            return 0
        if seen is not None:
            answered["faults.json"] = {"schema": 3, "hosts": seen}
        answered["timings.json"]["cluster"]["workers"] = workers
        for sample in answered["timings.json"]["samples"]:
            sample["start"], sample["stop"] = 100 + 2 * sample["run"], 102 + 2 * sample["run"]
        if failed:
            answered["failed.json"] = {
                "schema": 3, "status": "failed", "host": "client", "task": "t", "reasons": [failed],
            }  # fmt: skip
        return int(bool(failed))

    run = driver.start(tmp_path, "x", experiment(*faults), SETUP, quick=False, seed=7)
    driver.execute(run, FakeLab(spoil=spoil), lambda trial, status: None)
    [faulty] = [trial for trial in run.trials if trial.faults]
    result = store.need(Result, run.directory / faulty.trial)
    return result.status, result.reasons


def seen(at_s: float | None, lasted_s: float | None, found: str) -> Json:
    return {"at_s": at_s, "lasted_s": lasted_s, "state": found}


AT_2 = {**KILL, "at_s": 2}


@pytest.mark.parametrize(
    ("fault", "found", "left"),
    [
        (AT_2, seen(2.01, None, "failed"), 2),
        (AT_2, seen(2.01, None, "inactive"), 2),
        (CUT, seen(1.0, 3.1, "down"), 3),
        (CUT, seen(1.0, 3.1, "down"), 2),
        (RESTART, seen(1.2, 2.9, "inactive"), 3),
        (RESTART | {"for_s": 60}, seen(1.2, None, "inactive"), 2),
    ],
)
def test_a_fault_that_was_seen_is_valid_with_the_workers_it_leaves(
    tmp_path: Path, fault: Json, found: Json, left: int
) -> None:
    assert verdict(tmp_path, [fault], {fault["host"]: found}, left) == ("ok", ())


@pytest.mark.parametrize(
    ("fault", "found", "why"),
    [
        (AT_2, None, "requested kill of worker-2 at 2 s, but it was not read back"),
        (
            AT_2,
            seen(None, None, "nothing"),
            "requested kill of worker-2 at 2 s, but it did not happen: the runs took 10.00 s",
        ),
        (AT_2, seen(2, None, "active"), "requested kill of worker-2 at 2 s, but meanwhile it was active"),
        (AT_2, seen(9, None, "failed"), "requested kill of worker-2 at 2 s, it came at 9.00 s"),
        (CUT, seen(1, 3, "up"), "requested cut of worker-1 at 1 s for 3 s, but meanwhile it was up"),
        (CUT, seen(1, 6, "down"), "requested cut of worker-1 at 1 s for 3 s, it lasted 6.00 s"),
        (
            CUT,
            seen(1, None, "down"),
            "requested cut of worker-1 at 1 s for 3 s, it did not end within 10.00 s",
        ),
    ],
)
def test_a_fault_that_was_another_makes_the_trial_invalid(
    tmp_path: Path, fault: Json, found: Json | None, why: str
) -> None:
    told = {fault["host"]: found} if found else None
    left = 2 if fault["does"] == "kill" else 3
    assert verdict(tmp_path, [fault], told, left) == ("invalid", (why,))


@pytest.mark.parametrize(
    ("fault", "left"),
    [(AT_2, 3), (AT_2, 1), (CUT, 1), (RESTART, 1), (CUT | {"host": "scheduler"}, 2)],
)
def test_more_or_fewer_workers_than_the_faults_leave_is_a_failure(
    tmp_path: Path, fault: Json, left: int
) -> None:
    found = seen(2, None, "failed") if fault["does"] == "kill" else seen(1, 3, "down")
    status, reasons = verdict(tmp_path, [fault], {fault["host"]: found}, left)
    assert (status, reasons) == ("failed", (f"{left} workers computed, 3 were requested",))


def test_a_hang_is_said_with_its_faults_and_its_seed(tmp_path: Path) -> None:
    status, reasons = verdict(tmp_path, [AT_2], None, failed="client: it hung, it was not done within 300 s")
    assert status == "failed"
    assert reasons == (
        "client: it hung, it was not done within 300 s",
        "with kill of worker-2 at 2 s (seed 7)",
    )


@pytest.mark.parametrize(
    ("workers", "reasons"),
    [(100, []), (101, ["faults with more than 100 workers: these have no connections that could break"])],
)
def test_faults_are_simulated_among_whole_workers_only(workers: int, reasons: list[str]) -> None:
    asked = trials.requested("x", experiment(KILL), ("faulty",)).model_copy(update={"workers": workers})
    known = SimulatedSetup(origin="r", workloads=(Workload(),), seeds=1)
    assert list(known.unsupported(asked)) == reasons
