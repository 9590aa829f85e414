"""The life of a trial: it is planned, runs, gets a verdict, and may then be run again.

Theory of operation
-------------------
The state of a trial is what the files in its folder say (``state_of``), so killing the driver cannot make it
wrong. Only the driver knows that a trial is RUNNING: the files of a trial that runs are those of one that was
CUT. A state changes only along ``TRANSITIONS``; what the table lacks is refused.
"""

from __future__ import annotations

from enum import Enum

from dasklab.errors import LabError
from dasklab.model.files import Result
from dasklab.notices import warn
from dasklab.results.run import Trial


class State(Enum):
    """What a trial is. A verdict has the value that stands in result.json."""

    PLANNED = "planned"
    """Without a folder."""

    RUNNING = "running"

    CUT = "cut"
    """With a folder, but without a verdict that can be read: its driver was killed."""

    OK = "ok"
    INVALID = "invalid"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"

    DAMAGED = "damaged"
    """Judged, but a file that it had is missing or cannot be read."""


class Event(Enum):
    """What happens to a trial."""

    RUN = "a command runs all trials that were not measured"
    RUN_AGAIN = "the same, and all that do not count"
    REPEAT = "the driver repeats it, because others used its node"
    PASS = "its verdict is ok"
    EXCLUDE = "its verdict is invalid"
    REFUSE = "its verdict is unsupported"
    FAIL = "its verdict is failed"
    STOP = "its driver is stopped or killed"
    LOSE_FILE = "a file in its folder is lost"


TRANSITIONS = {
    (State.PLANNED, Event.RUN): State.RUNNING,
    (State.PLANNED, Event.RUN_AGAIN): State.RUNNING,
    (State.RUNNING, Event.PASS): State.OK,
    (State.RUNNING, Event.EXCLUDE): State.INVALID,
    (State.RUNNING, Event.REFUSE): State.UNSUPPORTED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.STOP): State.CUT,
    (State.CUT, Event.RUN): State.RUNNING,
    (State.CUT, Event.RUN_AGAIN): State.RUNNING,
    (State.FAILED, Event.RUN): State.RUNNING,
    (State.FAILED, Event.RUN_AGAIN): State.RUNNING,
    (State.INVALID, Event.REPEAT): State.RUNNING,
    (State.INVALID, Event.RUN_AGAIN): State.RUNNING,
    (State.OK, Event.LOSE_FILE): State.DAMAGED,
    (State.UNSUPPORTED, Event.LOSE_FILE): State.DAMAGED,
    (State.DAMAGED, Event.RUN_AGAIN): State.RUNNING,
}


def is_pending(trial: Trial, again: bool) -> bool:
    """Return whether a command runs this trial. With ``again`` it also runs what does not count."""
    event = Event.RUN_AGAIN if again else Event.RUN
    return (state_of(trial, check_files=again), event) in TRANSITIONS


def state_of(trial: Trial, *, check_files: bool) -> State:
    """Return what the files of a trial say. It is DAMAGED only if its files are checked, which reads all."""
    if not trial.folder.exists():
        return State.PLANNED
    try:
        result = trial.read(Result)
    except LabError as error:
        warn(f"{error.message}; the trial will be run again")
        return State.CUT
    if result is None:
        return State.CUT
    state = State(result.status)
    can_be_damaged = (state, Event.LOSE_FILE) in TRANSITIONS
    if check_files and can_be_damaged and trial.damage:
        return TRANSITIONS[state, Event.LOSE_FILE]
    return state
