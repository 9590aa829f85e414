"""The model behind ``dasklab explain``: the stages of a task, and how the time in each gets its cause.

Theory of operation
-------------------
A task passes through stages in a fixed order (table ``STAGES``). Each stage ends with a stamp that a process
took by its own clock; ``clocks`` puts all stamps on one clock. Time is explained backwards. We start at the
moment when a task began to run and walk back through the stages before it; the time between two stamps
belongs to the stage between them. The walk ends at the event that triggered the task: the end of another
task, or the arrival of a graph. If it was a task, its own later stages (from its end until the scheduler had
handled the report) are the first part of the walk. This is the task's *timeline*.

The *time breakdown* explains every gap of every thread by the timeline of the task that ended the gap. What
lies before that timeline is idle time: then the rest of the cluster says why the thread had no task (module
``idle``). The *critical path* starts at the end of the repeat instead, and repeats the walk from trigger to
trigger.

A message between two processes is split into three parts, because we cannot see it on the network:

    sender busy            neither busy          receiver busy
    |----------------------|---------------------|------------------------|
    written                                                          handled
    cause: sender          cause: wire           cause: receiver

If the sender's event loop stays busy after ``written``, the bytes may still be in its buffer, so that time is
the sender's. If the receiver's event loop was busy without a break until ``handled``, the bytes may have been
waiting there, so that time is the receiver's. What remains is the wire, including kernel and wake-up latency.

A message that waits to be sent is split at ``due``: until then, and for at most 5 ms, Dask's send timer held
it back because a batch had just left. The rest of the wait is the sender's.

A task that waits for data waits, at each moment, for the transfer that completed last among those still under
way. A transfer has stages of its own (module ``transfers``): the request travels, the sender serialises, the
data travels, the receiver deserialises.

A stamp may be missing: its stage then belongs to the stage that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dasklab.breakdown.model.causes import (
    COMPUTE,
    LAG,
    LOGIC,
    LOOP,
    MESSAGE,
    PEER,
    RECEIVED,
    SERIALISE,
    TIMER,
    WIRE,
    Cause,
)


class Process(Enum):
    """Whose clock stamps the end of a stage, and who is responsible for it."""

    SCHEDULER = "scheduler"
    WORKER = "worker"


class Rule(Enum):
    """How the time of a stage is divided among its causes."""

    WHOLE = "all of it has one cause"
    SEND_TIMER = "late, except for what the send timer held back"
    MESSAGE = "sender, wire, receiver"
    DATA = "the transfers that the task waits for"


@dataclass(frozen=True)
class Stage:
    """The time between two stamps of a task.

    Attributes:
        start, stop: names of the stamps.
        place: the process that holds the task; for a message, the one that receives it.
        causes: in the order of ``rule``.
        due: for ``Rule.SEND_TIMER``, the stamp until which the send timer held the message back.
        moves_with_link: whether a slower link makes it longer.
    """

    start: str
    stop: str
    title: str
    place: Process
    rule: Rule
    causes: tuple[Cause, ...]
    due: str = ""
    moves_with_link: bool = False


S, W = Process.SCHEDULER, Process.WORKER
STAGES = (
    Stage(
        "decided", "sent", "worker chosen, until its batch leaves", S,
        Rule.SEND_TIMER, (LOOP, TIMER), due="due",
    ),
    Stage(
        "sent", "arrived", "on the wire to the worker, until its event loop handles it", W,
        Rule.MESSAGE, (LOOP, MESSAGE, LAG), moves_with_link=True,
    ),
    Stage(
        "arrived", "ready", "waits for data", W,
        Rule.DATA, (WIRE, PEER, RECEIVED, SERIALISE, LAG), moves_with_link=True,
    ),
    Stage("ready", "executing", "no thread is free, or the event loop is busy", W, Rule.WHOLE, (LAG,)),
    Stage("executing", "start", "event loop to thread", W, Rule.WHOLE, (LAG,)),
    Stage("start", "stop", "computing", W, Rule.WHOLE, (COMPUTE,)),
    Stage("stop", "done", "thread to event loop", W, Rule.WHOLE, (LAG,)),
    Stage("done", "reported", "until its batch leaves", W, Rule.SEND_TIMER, (LAG, TIMER), due="report_due"),
    Stage(
        "reported", "handled", "on the wire to the scheduler, until it has handled it", S,
        Rule.MESSAGE, (LAG, MESSAGE, LOOP), moves_with_link=True,
    ),
)  # fmt: skip
SCHEDULER_CHOICE = Stage(
    "handled", "decided", "the scheduler chooses what comes next", S, Rule.WHOLE, (LOGIC,)
)
"""From the report of one task to the choice of a worker for the next: it links two timelines."""

STAMPS = (STAGES[0].start, *(stage.stop for stage in STAGES))
DUE_STAMPS = tuple(stage.due for stage in STAGES if stage.due)


def clock_of(stamp: str) -> Process:
    """Return which process takes a stamp."""
    return next(s.place for s in STAGES if stamp in (s.stop, s.due) or stamp == STAGES[0].start)


def stages_before_start() -> Iterator[Stage]:
    """Return what a task passes through before it runs, the latest stage first."""
    last = STAMPS.index("start")
    return reversed(STAGES[:last])


def stages_after_stop() -> Iterator[Stage]:
    """Return what a task passes through after it ran, the latest stage first."""
    first = STAMPS.index("stop")
    return reversed(STAGES[first:])
