"""The lives of a recorder and of a session, walked along their tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from dasklab.records.recorder.life import (
    FETCHING,
    RECORDING,
    SESSION_TRANSITIONS,
    TRANSITIONS,
    Life,
    RecorderEvent,
    RecorderState,
    SessionEvent,
    SessionLife,
    SessionState,
)

Table = Mapping[tuple[Any, Any], Any]
MACHINES = [
    pytest.param(Life, TRANSITIONS, RecorderState, RecorderEvent, id="recorder"),
    pytest.param(SessionLife, SESSION_TRANSITIONS, SessionState, SessionEvent, id="session"),
]


def paths(table: Table, first: Any) -> dict[Any, list[Any]]:
    """Return a shortest list of events that leads to each state."""
    known: dict[Any, list[Any]] = {first: []}
    for state in (queue := [first]):
        for (before, event), after in table.items():
            if before is state and after not in known:
                known[after] = [*known[state], event]
                queue.append(after)
    return known


def walk(life: Any, *events: Any) -> Any:
    for event in events:
        life.move(event)
    return life.state


@pytest.mark.parametrize(("life", "table", "states", "events"), MACHINES)
def test_every_state_is_reached_and_every_event_is_handled_or_refused(
    life: type[Any], table: Table, states: Any, events: Any
) -> None:
    reach = paths(table, life().state)
    assert reach.keys() == set(states)
    assert {event for _, event in table} == set(events)
    for state, event in itertools.product(reach, events):
        if (state, event) in table:
            assert walk(life(), *reach[state], event) is table[state, event]
        else:
            with pytest.raises(KeyError):
                walk(life(), *reach[state], event)


def test_a_recorder_can_detach_in_each_state_and_stays_detached() -> None:
    assert {TRANSITIONS[state, RecorderEvent.DETACH] for state in RecorderState} == {RecorderState.DETACHED}
    assert {after for (state, _), after in TRANSITIONS.items() if state is RecorderState.DETACHED} == {
        RecorderState.DETACHED
    }
    assert RecorderState.DETACHED not in RECORDING


def test_a_session_whose_cluster_or_folder_failed_is_never_complete() -> None:
    lost = {SessionState.CUT_OFF, SessionState.UNWRITABLE}
    after_loss = {after for (state, _), after in SESSION_TRANSITIONS.items() if state in lost}
    assert after_loss == lost and lost.isdisjoint(FETCHING)
