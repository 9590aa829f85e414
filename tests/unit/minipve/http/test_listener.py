"""The states of a connection, walked along their table."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from aiohttp import web
from minipve.http import listener
from minipve.http.listener import (
    DEADLINE_S,
    TRANSITIONS,
    WAITING,
    Connection,
    ConnectionEvent,
    ConnectionState,
)

IMPOSSIBLE = [pair for pair in itertools.product(ConnectionState, ConnectionEvent) if pair not in TRANSITIONS]


def paths() -> dict[ConnectionState, list[ConnectionEvent]]:
    """Return a shortest list of events that leads to each state."""
    known: dict[ConnectionState, list[ConnectionEvent]] = {ConnectionState.HANDSHAKE: []}
    for state in (queue := [ConnectionState.HANDSHAKE]):
        for (before, event), after in TRANSITIONS.items():
            if before is state and after not in known:
                known[after] = [*known[state], event]
                queue.append(after)
    return known


def walk(*events: ConnectionEvent, on_wait: Callable[[], None] = lambda: None) -> Connection:
    """Return a connection to which these events have happened."""

    async def run() -> Connection:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response()

        connection = Connection(web.Server(answer), asyncio.get_running_loop(), on_wait)
        for event in events:
            connection._move(event)
        return connection

    return asyncio.run(run())


def test_every_state_can_be_reached() -> None:
    assert paths().keys() == set(ConnectionState)


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_every_transition_leads_where_the_table_says(state: ConnectionState, event: ConnectionEvent) -> None:
    connection = walk(*paths()[state], event)
    assert connection.state is TRANSITIONS[state, event]
    has_deadline = connection._deadline is not None and not connection._deadline.cancelled()
    assert has_deadline == (connection.state in DEADLINE_S)


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_events_that_cannot_happen_are_refused(state: ConnectionState, event: ConnectionEvent) -> None:
    with pytest.raises(KeyError):
        walk(*paths()[state], event)


def test_every_live_state_can_be_cut_and_lost_and_an_ended_one_stays() -> None:
    ended = {ConnectionState.CUT, ConnectionState.CLOSED}
    for state, event in itertools.product(ConnectionState, (ConnectionEvent.CUT, ConnectionEvent.LOST)):
        assert TRANSITIONS[state, event] in ended
    assert {after for (before, _), after in TRANSITIONS.items() if before in ended} == ended


def test_listener_hears_of_each_wait_that_starts() -> None:
    waits: list[None] = []
    request = (
        ConnectionEvent.REQUEST,
        ConnectionEvent.DELAY,
        ConnectionEvent.DELAY_OVER,
        ConnectionEvent.ANSWER,
    )
    walk(ConnectionEvent.SECURED, *request, *request, on_wait=lambda: waits.append(None))
    assert len(waits) == 4, "two delays and two answers; the first wait began with the connection"


def test_request_at_work_keeps_its_slot() -> None:
    working = {ConnectionState.FIRST_REQUEST, ConnectionState.LATER_REQUEST}
    assert set(ConnectionState) - WAITING == working | {ConnectionState.CUT, ConnectionState.CLOSED}


def test_client_without_an_answer_loses_its_slot_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 3)
    first = walk(*paths()[ConnectionState.FIRST_HEAD])
    idle = walk(*paths()[ConnectionState.LATER_HEAD])
    busy = walk(*paths()[ConnectionState.FIRST_REQUEST])
    first.since = idle.since + 1
    slots = listener.Listener.__new__(listener.Listener)
    slots._slots = dict(enumerate((idle, busy, first)))
    states = []
    for _ in range(3):
        has_slot = slots._has_slot()
        states.append((has_slot, first.state.name, idle.state.name, busy.state.name))
        monkeypatch.setattr(listener, "MAX_CONNECTIONS", listener.MAX_CONNECTIONS - 1)
    assert states == [
        (True, "CUT", "LATER_HEAD", "FIRST_REQUEST"),
        (True, "CUT", "CUT", "FIRST_REQUEST"),
        (False, "CUT", "CUT", "FIRST_REQUEST"),
    ]
