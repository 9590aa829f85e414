"""Faults are drawn from the seed, judged by what happened, and may cost workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.files import Result
from dasklab.results.storage import documents
from dasklab.running.driver import driver
from dasklab.running.plan import trials

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

KILL = {"host": "worker-2", "does": "kill", "at_s": [1, 3]}
KILL_AT_2 = {**KILL, "at_s": 2}
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
            "repeats": 5,
            "blocks": 1,
        }
    )


def moments(**choice: Any) -> dict[int, float]:
    """Plan three blocks, and map each of them to the moment of its fault."""
    planned = trials.plan("x", experiment(KILL).model_copy(update={"blocks": 3}), SETUP, **choice)
    return {trial.block: float(trial.faults[0].at_s) for trial in planned if trial.faults}


def test_moment_is_drawn_by_seed_and_block() -> None:
    drawn = moments(seed=7)
    assert len(set(drawn.values())) == 3
    assert all(1 <= at_s <= 3 for at_s in drawn.values())
    assert moments(seed=8) != drawn


def test_cell_alone_has_the_same_moments() -> None:
    assert moments(seed=7, only="fault=faulty") == moments(seed=7)


def verdict(
    tmp_path: Path, fault: Json, observed: Json | None, workers: int = 3, failed: str = ""
) -> tuple[str, tuple[str, ...]]:
    """Run a trial with a fault in a fake lab, and return the status and the reasons.

    Args:
        tmp_path: for the run.
        fault: the requested fault.
        observed: what the host reports about it.
        workers: how many workers are left.
        failed: why the playbook failed, if it did.
    """

    def spoil(trial: Json, files: Json) -> int:
        if not trial["faults"]:
            return 0
        if observed is not None:
            files["faults.json"] = {"schema": 4, "hosts": {fault["host"]: observed}}
        files["timings.json"]["cluster"]["workers"] = workers
        for sample in files["timings.json"]["samples"]:
            sample["start"], sample["stop"] = 100 + 2 * sample["repeat"], 102 + 2 * sample["repeat"]
        if failed:
            document = {"schema": 4, "status": "failed", "host": "client", "task": "t"}
            files["failed.json"] = document | {"reasons": [failed]}
        return int(bool(failed))

    run = driver.start(tmp_path, "x", experiment(fault), SETUP, quick=False, seed=7)
    driver.execute(run, FakeLab(spoil=spoil), lambda trial, status: None)
    [faulty] = [trial for trial in run.trials if trial.faults]
    result = documents.require(Result, run.stored.folder / faulty.trial)
    return result.status, result.reasons


def observed(at_s: float | None, lasted_s: float | None, state: str) -> Json:
    return {"at_s": at_s, "lasted_s": lasted_s, "state": state}


@pytest.mark.parametrize(
    ("fault", "observation", "left"),
    [
        (KILL_AT_2, observed(2.01, None, "failed"), 2),
        (KILL_AT_2, observed(2.01, None, "inactive"), 2),
        (CUT, observed(1.0, 3.1, "down"), 3),
        (CUT, observed(1.0, 3.1, "down"), 2),
        (RESTART, observed(1.2, 2.9, "inactive"), 3),
        (RESTART | {"for_s": 60}, observed(1.2, None, "inactive"), 2),
    ],
)
def test_fault_that_happened_is_valid_with_the_workers_it_leaves(
    tmp_path: Path, fault: Json, observation: Json, left: int
) -> None:
    assert verdict(tmp_path, fault, observation, left) == ("ok", ())


@pytest.mark.parametrize(
    ("fault", "observation", "reason"),
    [
        (KILL_AT_2, None, "requested kill of worker-2 at 2 s, but it was not read back"),
        (
            KILL_AT_2,
            observed(None, None, "nothing"),
            "requested kill of worker-2 at 2 s, but it did not happen: the repeats took 10.00 s",
        ),
        (
            KILL_AT_2,
            observed(2, None, "active"),
            "requested kill of worker-2 at 2 s, but meanwhile it was active",
        ),
        (KILL_AT_2, observed(9, None, "failed"), "requested kill of worker-2 at 2 s, it came at 9.00 s"),
        (CUT, observed(1, 3, "up"), "requested cut of worker-1 at 1 s for 3 s, but meanwhile it was up"),
        (CUT, observed(1, 6, "down"), "requested cut of worker-1 at 1 s for 3 s, it lasted 6.00 s"),
        (
            CUT,
            observed(1, None, "down"),
            "requested cut of worker-1 at 1 s for 3 s, it did not end within 10.00 s",
        ),
    ],
)
def test_fault_that_differs_from_the_request_makes_the_trial_invalid(
    tmp_path: Path, fault: Json, observation: Json | None, reason: str
) -> None:
    left = 2 if fault["does"] == "kill" else 3
    assert verdict(tmp_path, fault, observation, left) == ("invalid", (reason,))


@pytest.mark.parametrize(
    ("fault", "left"),
    [(KILL_AT_2, 3), (KILL_AT_2, 1), (CUT, 1), (RESTART, 1), (CUT | {"host": "scheduler"}, 2)],
)
def test_more_or_fewer_workers_than_the_fault_leaves_is_a_failure(
    tmp_path: Path, fault: Json, left: int
) -> None:
    killed = fault["does"] == "kill"
    observation = observed(2, None, "failed") if killed else observed(1, 3, "down")
    assert verdict(tmp_path, fault, observation, left) == (
        "failed",
        (f"{left} workers computed, 3 were requested",),
    )


def test_failure_is_reported_with_its_faults_and_its_seed(tmp_path: Path) -> None:
    hang = "client: it hung, it was not done within 300 s"
    assert verdict(tmp_path, KILL_AT_2, None, failed=hang) == (
        "failed",
        (hang, "with kill of worker-2 at 2 s (seed 7)"),
    )
