"""The life of a trial: the table of transitions, and what the files of a trial say."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from dasklab.model.files import Result, Status, Timings
from dasklab.results.run import Trial
from dasklab.running.driver import driver
from dasklab.running.driver.life import TRANSITIONS, Event, State, is_pending, state_of

from tests.unit.dasklab.conftest import FakeLab

NOT_WITHOUT_REQUEST = {State.OK, State.INVALID, State.UNSUPPORTED, State.DAMAGED}
NEVER_AGAIN = {State.OK, State.UNSUPPORTED}


def test_every_state_is_reached_and_every_event_happens() -> None:
    reached, events = {State.PLANNED}, set()
    while new := {(s, e) for s, e in product(reached, Event) if (s, e) in TRANSITIONS} - events:
        events |= new
        reached |= {TRANSITIONS[step] for step in new}
    assert reached == set(State)
    assert events == set(TRANSITIONS) and {event for _, event in events} == set(Event)


def test_a_running_trial_ends_with_each_verdict() -> None:
    ends = {TRANSITIONS[State.RUNNING, event] for event in Event if (State.RUNNING, event) in TRANSITIONS}
    assert ends == {State(status) for status in get_args(Status)} | {State.CUT}


@pytest.mark.parametrize(
    "state", [state for state in State if state is not State.RUNNING], ids=lambda state: state.value
)
def test_a_command_runs_what_the_table_says(
    state: State, measured: Callable[..., driver.ActiveRun], tmp_path: Path
) -> None:
    run = measured(FakeLab())
    trial = run.stored.folder / run.trials[1].trial
    if state is State.PLANNED:
        trial = run.stored.folder / "9-99-planned"
    elif state is State.CUT:
        (trial / Result.FILE).unlink()
    elif state is State.DAMAGED:
        (trial / Timings.FILE).unlink()
    else:
        result = json.loads((trial / Result.FILE).read_text())
        (trial / Result.FILE).write_text(json.dumps(result | {"status": state.value}))
    assert state_of(Trial(trial), check_files=True) is state
    assert is_pending(Trial(trial), again=False) is (state not in NOT_WITHOUT_REQUEST)
    assert is_pending(Trial(trial), again=True) is (state not in NEVER_AGAIN)
