"""ObservedFaults in simulated Dask: done, and equal in every process; what is not done in time hangs."""

from __future__ import annotations

import pytest
from dasklab.model.files import ObservedFault, Outcome
from dasklab.predict import farm
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.sim.samples import CUT, KILL, RESTART, scenario

FOREVER = {"host": "scheduler", "does": "cut", "at_s": 0.05, "for_s": 100}


def faulty(*faults: dict[str, object], **changes: object) -> Scenario:
    """20 ms a task: a run of 0.2 s."""
    tasks = {"random_sample": [(0.02, 0.0, 2_000_000)], "add": [(0.02, 0.0, 2_000_000)]}
    return scenario(tasks=tasks, faults=faults, **({"runs": 4, "seed": 5, "limit_s": 25} | changes))


@pytest.fixture(scope="module")
def ran() -> list[Outcome]:
    """At once, for each costs seconds."""
    asked = [faulty(fault) for fault in (KILL, RESTART, CUT)]
    return farm.simulate_all([faulty(), *asked, *asked, faulty(FOREVER)])


def test_the_same_seed_and_faults_do_the_same_in_every_process(ran: list[Outcome]) -> None:
    once, again = ran[1:4], ran[4:7]
    assert [one.digest for one in once] == [one.digest for one in again]
    assert len({one.digest for one in ran[:4]}) == 4


def test_a_killed_worker_is_gone_and_one_that_was_restarted_is_back(ran: list[Outcome]) -> None:
    none, kill, restart, cut = ran[:4]
    assert [one.failed for one in ran[:4]] == [None] * 4
    assert kill.workers == 2 and restart.workers == cut.workers == none.workers == 3
    assert kill.runs[1].duration_s > none.runs[1].duration_s
    assert kill.faults == {"worker-2": ObservedFault(at_s=0.05, lasted_s=None, state="inactive")}
    assert restart.faults["worker-2"].state == "inactive" and none.faults == {}


def test_a_cut_lasts_until_timers_fire_behind_it(ran: list[Outcome]) -> None:
    none, cut = ran[0].runs[0].duration_s, ran[3].runs[0].duration_s
    # 0.2 and 0.4 s after what was sent last; and nobody waits for longer than the timer behind that
    assert none + 0.3 < cut < none + 1.4 + 0.3
    assert ran[3].faults["worker-1"] == ObservedFault(at_s=0.05, lasted_s=0.5, state="down")


def test_what_is_not_done_in_time_hangs_and_says_what_is_left(ran: list[Outcome]) -> None:
    hung = ran[7]
    assert hung.hung and hung.failed is not None
    assert hung.failed.startswith("it hung, it was not done within 25 s of virtual time: 3 workers; tasks: ")
    assert hung.runs == ()
