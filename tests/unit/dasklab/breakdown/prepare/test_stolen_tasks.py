"""A task moves from a victim to a thief: the thief gets it when the victim gives it up, not before."""

from __future__ import annotations

from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.model.arrays import NONE
from dasklab.breakdown.model.causes import COMPUTE, LOGIC, LOOP, Cause
from dasklab.breakdown.model.repeat import Repeat

from tests.unit.dasklab.breakdown.timelines import make_repeat, task


def stolen_at(moment: float, kind: str = "confirm") -> Repeat:
    """``a`` runs until 6 s; ``b`` was chosen at 1 s for worker-1, and ran on worker-2 after a steal."""
    a = task("a", "worker-2", 1, 1.0, 6.0, decided=0.9, sent=0.9, arrived=0.95, ready=0.95, executing=0.95,
             done=6.0, reported=6.0, handled=6.0)  # fmt: skip
    b = task("b", "worker-2", 1, moment + 0.1, 9.0, decided=1.0, sent=moment + 0.01, arrived=moment + 0.02,
             ready=moment + 0.02, executing=moment + 0.1, done=9.0, reported=9.0, handled=9.0,
             due=moment)  # fmt: skip
    steal = {"time_s": moment, "kind": kind, "key": "b", "victim": "worker-1", "thief": "worker-2"}
    call = {"kind": "sync", "start_s": 0.0, "stop_s": 9.0}
    unfinished = [(0.0, 2), (6.0, 1), (9.0, 0)]
    tables = {"steals": [steal], "calls": [call]}
    return make_repeat([a, b], stop=9.0, unfinished=unfinished, tables=tables)


def path_seconds(repeat: Repeat, *causes: Cause) -> float:
    path = critical_path(repeat)
    return float(path.seconds[path.is_cause(*causes)].sum())


def test_time_before_a_steal_is_what_the_thief_did() -> None:
    repeat = stolen_at(6.05)
    assert repeat.tasks.stamps["decided"].tolist() == [0.9, 6.05]
    assert repeat.tasks.trigger.tolist() == [NONE, 0]
    assert path_seconds(repeat, LOOP) < 0.1
    assert path_seconds(repeat, COMPUTE) > 7.5
    assert 0.04 < path_seconds(repeat, LOGIC) < 0.06


def test_an_end_long_before_a_steal_is_not_its_reason() -> None:
    repeat = stolen_at(7.0)
    assert repeat.tasks.trigger.tolist() == [NONE, NONE]
    assert path_seconds(repeat, LOGIC) == 0


def test_a_steal_that_was_only_asked_for_changes_nothing() -> None:
    repeat = stolen_at(6.05, "request")
    assert repeat.tasks.stamps["decided"].tolist() == [0.9, 1.0]
