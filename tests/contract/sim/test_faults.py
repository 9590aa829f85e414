"""Faults in the simulated Dask: they happen, equally in every process, and a run that never ends hangs."""

from __future__ import annotations

import pytest
from dasklab.model.files import ObservedFault, Outcome
from dasklab.predict.engine import processes
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.sim.samples import CUT, KILL, RESTART, scenario

LONG_CUT = {"host": "scheduler", "does": "cut", "at_s": 0.05, "for_s": 100}


def with_faults(*faults: dict[str, object], **changes: object) -> Scenario:
    """20 ms per task: a run takes 0.2 s."""
    tasks = {"random_sample": [(0.02, 0.0, 2_000_000)], "add": [(0.02, 0.0, 2_000_000)]}
    return scenario(tasks=tasks, faults=faults, **({"repeats": 4, "seed": 5, "limit_s": 25} | changes))


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """No fault, then kill, restart and cut, the same again, and a cut that is too long. All in parallel."""
    faults = [with_faults(fault) for fault in (KILL, RESTART, CUT)]
    return processes.simulate_all([with_faults(), *faults, *faults, with_faults(LONG_CUT)])


def test_same_seed_and_faults_give_the_same_digest_in_every_process(outcomes: list[Outcome]) -> None:
    first, second = outcomes[1:4], outcomes[4:7]
    assert [outcome.digest for outcome in first] == [outcome.digest for outcome in second]
    assert len({outcome.digest for outcome in outcomes[:4]}) == 4


def test_killed_worker_is_gone_and_a_restarted_one_is_back(outcomes: list[Outcome]) -> None:
    none, kill, restart, cut = outcomes[:4]
    assert [outcome.failed for outcome in outcomes[:4]] == [None] * 4
    assert kill.workers == 2 and restart.workers == cut.workers == none.workers == 3
    assert kill.repeats[1].duration_s > none.repeats[1].duration_s
    assert kill.faults == {"worker-2": ObservedFault(at_s=0.05, lasted_s=None, state="inactive")}
    assert restart.faults["worker-2"].state == "inactive" and none.faults == {}


def test_cut_lasts_until_timers_fire_after_it(outcomes: list[Outcome]) -> None:
    none, cut = outcomes[0].repeats[0].duration_s, outcomes[3].repeats[0].duration_s
    # Timers fire 0.2, 0.6 and 1.4 s after the last segment, so nothing waits beyond 1.4 s
    assert none + 0.3 < cut < none + 1.4 + 0.3
    assert outcomes[3].faults["worker-1"] == ObservedFault(at_s=0.05, lasted_s=0.5, state="down")


def test_run_beyond_the_limit_hangs_and_reports_what_remains(outcomes: list[Outcome]) -> None:
    hung = outcomes[7]
    assert hung.hung and hung.failed is not None
    assert hung.failed.startswith("it hung, it was not done within 25 s of virtual time: 3 workers; tasks: ")
    assert hung.repeats == ()
