"""The life of a recorder in a process, and of the session that fetches what the recorders keep.

Theory of operation
-------------------
A recorder changes the process that it records, so it must be known at each moment whether it may still do so.
It detaches when its session asks for it. If the session is gone, the recorder is an orphan and detaches by
itself: the scheduler's tells the rest of the cluster, a worker's ends alone.

A session goes on when something fails, because it must not cost the user a result. Its state says what is
still fetched and written.

Rules for this package: a state changes only along its table, and the state alone decides whether hooks record
and whether rows are written. Events that a table lacks cannot happen; they raise KeyError.
"""

from __future__ import annotations

from enum import Enum, auto


class RecorderState(Enum):
    """What a recorder does to the process that it is in."""

    NEW = auto()  # on its way to its process
    ATTACHED = auto()  # its hooks record
    DECLINING = auto()  # it could not attach, and says so when it is visited
    DETACHING = auto()  # its process ends: its hooks record while it hands over its rows
    ORPHANED = auto()  # nobody takes its rows: its hooks record until the others know
    DETACHED = auto()  # all that it changed is as it was before


class RecorderEvent(Enum):
    """What happens to a recorder."""

    ATTACH = auto()
    FAIL = auto()  # something that it needs is missing
    CLOSE = auto()  # its process ends
    ABANDON = auto()  # its client left, or its lease ended
    DETACH = auto()


TRANSITIONS = {
    (RecorderState.NEW, RecorderEvent.ATTACH): RecorderState.ATTACHED,
    (RecorderState.NEW, RecorderEvent.FAIL): RecorderState.DECLINING,
    (RecorderState.NEW, RecorderEvent.DETACH): RecorderState.DETACHED,
    (RecorderState.ATTACHED, RecorderEvent.CLOSE): RecorderState.DETACHING,
    (RecorderState.ATTACHED, RecorderEvent.ABANDON): RecorderState.ORPHANED,
    (RecorderState.ATTACHED, RecorderEvent.DETACH): RecorderState.DETACHED,
    (RecorderState.DECLINING, RecorderEvent.DETACH): RecorderState.DETACHED,
    (RecorderState.DETACHING, RecorderEvent.ABANDON): RecorderState.DETACHING,
    (RecorderState.DETACHING, RecorderEvent.DETACH): RecorderState.DETACHED,
    (RecorderState.ORPHANED, RecorderEvent.ABANDON): RecorderState.ORPHANED,
    (RecorderState.ORPHANED, RecorderEvent.DETACH): RecorderState.DETACHED,
    # its last tick may still be under way
    (RecorderState.DETACHED, RecorderEvent.ABANDON): RecorderState.DETACHED,
    # Dask removes a plugin that has left by itself
    (RecorderState.DETACHED, RecorderEvent.DETACH): RecorderState.DETACHED,
}
RECORDING = frozenset({RecorderState.ATTACHED, RecorderState.DETACHING, RecorderState.ORPHANED})
"""The states in which hooks record."""


class Life:
    """The state of a recorder."""

    def __init__(self) -> None:
        self.state = RecorderState.NEW

    def move(self, event: RecorderEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    @property
    def is_recording(self) -> bool:
        return self.state in RECORDING


class SessionState(Enum):
    """What a session fetches and writes."""

    NEW = auto()  # it has not attached
    RECORDING = auto()  # all
    FULL = auto()  # all is fetched; rows beyond the size limit are counted, not written
    CUT_OFF = auto()  # the cluster is gone: only what the client recorded is written
    UNWRITABLE = auto()  # the folder is gone: nothing is fetched or written
    COMPLETE = auto()  # it has detached, and nothing is missing


class SessionEvent(Enum):
    """What happens to a session."""

    ATTACH = auto()
    REACH_LIMIT = auto()
    LOSE_CLUSTER = auto()
    LOSE_FOLDER = auto()
    DETACH = auto()  # the cluster says that it has


SESSION_TRANSITIONS = {
    (SessionState.NEW, SessionEvent.ATTACH): SessionState.RECORDING,
    (SessionState.RECORDING, SessionEvent.REACH_LIMIT): SessionState.FULL,
    (SessionState.RECORDING, SessionEvent.LOSE_CLUSTER): SessionState.CUT_OFF,
    (SessionState.RECORDING, SessionEvent.LOSE_FOLDER): SessionState.UNWRITABLE,
    (SessionState.RECORDING, SessionEvent.DETACH): SessionState.COMPLETE,
    (SessionState.FULL, SessionEvent.REACH_LIMIT): SessionState.FULL,
    (SessionState.FULL, SessionEvent.LOSE_CLUSTER): SessionState.CUT_OFF,
    (SessionState.FULL, SessionEvent.LOSE_FOLDER): SessionState.UNWRITABLE,
    (SessionState.FULL, SessionEvent.DETACH): SessionState.FULL,
    (SessionState.CUT_OFF, SessionEvent.REACH_LIMIT): SessionState.CUT_OFF,
    (SessionState.CUT_OFF, SessionEvent.LOSE_CLUSTER): SessionState.CUT_OFF,
    (SessionState.CUT_OFF, SessionEvent.LOSE_FOLDER): SessionState.UNWRITABLE,
    (SessionState.CUT_OFF, SessionEvent.DETACH): SessionState.CUT_OFF,
    (SessionState.UNWRITABLE, SessionEvent.LOSE_CLUSTER): SessionState.UNWRITABLE,
    (SessionState.UNWRITABLE, SessionEvent.DETACH): SessionState.UNWRITABLE,
    (SessionState.COMPLETE, SessionEvent.REACH_LIMIT): SessionState.FULL,
    (SessionState.COMPLETE, SessionEvent.LOSE_FOLDER): SessionState.UNWRITABLE,
}
FETCHING = frozenset({SessionState.RECORDING, SessionState.FULL})
"""The states in which a session visits the cluster."""


class SessionLife:
    """The state of a session."""

    def __init__(self) -> None:
        self.state = SessionState.NEW

    def move(self, event: SessionEvent) -> None:
        self.state = SESSION_TRANSITIONS[self.state, event]

    @property
    def is_fetching(self) -> bool:
        return self.state in FETCHING

    @property
    def is_complete(self) -> bool:
        return self.state is SessionState.COMPLETE

    @property
    def is_writable(self) -> bool:
        return self.state is not SessionState.UNWRITABLE
