"""Invariants of a breakdown, and how an answer is weakened when one fails.

Theory of operation
-------------------
A breakdown answers where the time went, so it can be checked against what there was: the run, the threads
and when they existed, the tasks, the graphs, the pauses. Each row of ``INVARIANTS`` compares the intervals of
an answer with that. A violation is a bug of this package, or a record whose times contradict each other;
nobody who reads the answer can tell which. So the claim is lowered: seconds that the evidence does not cover
get the cause ``UNDIVIDED``, and what remains is true. Lowered breakdowns violate nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dasklab.breakdown.answers.bottlenecks.grounds import client_is_recorded, is_listed
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.answers.path.replay import Replay
from dasklab.breakdown.assign.threads import break_down, existence
from dasklab.breakdown.assign.timeline import explain_after
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, running_max
from dasklab.breakdown.model.causes import (
    AGAIN,
    CAUSES,
    COMPUTE,
    DISK,
    EXTERNAL,
    EXTERNAL_OR_STARVED,
    GARBAGE,
    HOLDING,
    INTERPRETER,
    LOCK,
    NESTED,
    NO_WORKER,
    PAUSED,
    PLAN,
    UNDIVIDED,
    UNMETERED,
    USER,
    Group,
)
from dasklab.breakdown.model.intervals import TICK_S, Intervals, Windows, concatenate
from dasklab.breakdown.model.repeat import FIRST_WORKER, Repeat

OF_TASKS = (
    COMPUTE,
    DISK,
    LOCK,
    HOLDING,
    NESTED,
    EXTERNAL,
    INTERPRETER,
    AGAIN,
    EXTERNAL_OR_STARVED,
    UNMETERED,
)
"""Causes that are about a task: their place is the worker that ran it."""

MAX_REPLAY_ERROR = 0.1  # a replay that misses the run by a larger share says nothing of another network
LEAST_S = 0.001  # what is less does not count as a violation where clocks decide
ROUNDING_S = 1e-5  # of recorded stamps, and of sums of them
GRACE_S, GRACE_SHARE = 0.05, 0.01  # of the run: by so much the path may exceed the threads


@dataclass(frozen=True)
class Breakdown:
    """The intervals of a repeat: those of all its threads, and those of its critical path."""

    repeat: Repeat
    threads: Intervals
    path: Intervals


@dataclass(frozen=True)
class Violation:
    """Seconds of a claim that go beyond the evidence, and the name of the invariant that says so."""

    invariant: str
    seconds: float
    sentence: str


Lowered = tuple[Breakdown, list[tuple[float, str]]]  # with the seconds and a sentence of each violation


@dataclass(frozen=True)
class Invariant:
    """Something that holds for every answer.

    Attributes:
        name: in ``--json``.
        title: what holds.
    """

    name: str
    title: str


@dataclass(frozen=True)
class OfBreakdown(Invariant):
    """An invariant of breakdowns; ``lower`` returns one for which it holds, and what violated it."""

    lower: Callable[[Breakdown], Lowered]


def checked(repeat: Repeat) -> tuple[Breakdown, list[Violation]]:
    """Break down the time of a repeat; return what is true of the result, and the violations before that."""
    return lower(Breakdown(repeat, break_down(repeat), critical_path(repeat)))


def lower(breakdown: Breakdown) -> tuple[Breakdown, list[Violation]]:
    """Return a breakdown for which all invariants hold, and the violations of the one given."""
    violations: list[Violation] = []
    for invariant in OF_BREAKDOWNS:
        breakdown, violated = invariant.lower(breakdown)
        violations += [Violation(invariant.name, seconds, sentence) for seconds, sentence in violated]
    return breakdown, violations


def lower_replay(replayed: Replay | None, makespan_s: float) -> tuple[Replay | None, list[Violation]]:
    """Return what may be quoted of a replay, and the invariants that it violates."""
    if replayed is None:
        return None, []
    error_s = replayed.as_it_was_s - makespan_s
    if abs(error_s) > MAX_REPLAY_ERROR * makespan_s:
        sentence = f"the replay misses the run by {error_s:.3f} s"
        return None, [Violation(REPLAY_MATCHES.name, abs(error_s), sentence)]
    beyond_s = replayed.as_it_was_s - replayed.without_wire_s - replayed.transfer_s
    if beyond_s <= ROUNDING_S:
        return replayed, []
    sentence = f"the network would save {beyond_s:.3f} s more than all transfers took"
    lowered = replace(replayed, without_wire_s=replayed.as_it_was_s - replayed.transfer_s)
    return lowered, [Violation(NETWORK_HAS_TRANSFERS.name, beyond_s, sentence)]


def _cover_run(breakdown: Breakdown) -> Lowered:
    repeat = breakdown.repeat
    path, violated = _cover(breakdown.path, np.array([repeat.start]), np.array([repeat.stop]))
    sentences = [(seconds, f"the critical path {words} for {seconds:.3f} s") for seconds, words in violated]
    return replace(breakdown, path=path), sentences


def _cover_threads(breakdown: Breakdown) -> Lowered:
    threads, violated = _cover(breakdown.threads, *existence(breakdown.repeat))
    sentences = [(seconds, f"the threads' time {words} for {seconds:.3f} s") for seconds, words in violated]
    return replace(breakdown, threads=threads), sentences


def _cover(intervals: Intervals, start: Floats, stop: Floats) -> tuple[Intervals, list[tuple[float, str]]]:
    """Make each lane cover the time between two moments exactly once; tell by how much it did not.

    What overlaps belongs to the interval that began first.
    """
    intervals = intervals.in_order()
    lane, before = intervals.lane, float(intervals.seconds.sum())
    is_first = np.append(True, lane[1:] != lane[:-1])[: len(lane)]
    until = running_max(lane, np.minimum(intervals.stop, stop[lane])) if len(lane) else intervals.stop
    free = np.where(is_first, start[lane], np.append(0.0, until[:-1])[: len(until)])
    free = np.maximum(free, start[lane])
    trimmed = replace(
        intervals, start=np.maximum(intervals.start, free), stop=np.minimum(intervals.stop, stop[lane])
    )
    trimmed = trimmed.select(trimmed.seconds > TICK_S)
    excess = before - float(trimmed.seconds.sum())
    rest_start = start.copy()
    np.maximum.at(rest_start, lane, until)
    gap_start, gap_stop = (
        np.concatenate([free, rest_start]),
        np.concatenate([np.minimum(intervals.start, stop[lane]), stop]),
    )
    lanes = np.concatenate([lane, np.arange(len(start))])
    missing = gap_stop - gap_start > ROUNDING_S
    gaps = _undivided(gap_start[missing], gap_stop[missing], lanes[missing])
    words = [(excess, "overlaps, or exceeds what there was,"), (float(gaps.seconds.sum()), "is not covered")]
    return concatenate([trimmed, gaps]).in_order(), [item for item in words if item[0] > ROUNDING_S]


def _undivided(start: Floats, stop: Floats, lane: Codes) -> Intervals:
    nothing = np.full(len(start), NONE)
    return Intervals(start, stop, np.full(len(start), UNDIVIDED.code), nothing, nothing, lane)


def _place_evidence(breakdown: Breakdown) -> Lowered:
    """Take the seconds off a place for which nothing was recorded there."""
    violated: list[tuple[float, str]] = []
    parts = []
    for intervals in (breakdown.threads, breakdown.path):
        beyond = _beyond_place(breakdown.repeat, intervals)
        for cause in CAUSES:
            own = intervals.is_cause(cause)
            if seconds := float(beyond[own].sum()):
                sentence = f"{cause.title}: {seconds:.3f} s at places without evidence of it"
                violated.append((seconds, sentence))
        parts.append(_take_off(intervals, beyond))
    return replace(breakdown, threads=parts[0], path=parts[1]), violated


def _beyond_place(repeat: Repeat, intervals: Intervals) -> Floats:
    """Return how many seconds of each interval are claimed of a place beyond what was recorded there."""
    task = intervals.task
    of_task = intervals.is_cause(*OF_TASKS) & (task != NONE)
    elsewhere = np.zeros(len(task), bool)
    elsewhere[of_task] = repeat.tasks.worker[task[of_task]] != intervals.place[of_task]
    beyond = np.where(elsewhere, intervals.seconds, 0.0)
    for cause, recorded in ((GARBAGE, repeat.evidence.collections), (PAUSED, repeat.evidence.paused)):
        own = np.flatnonzero(intervals.is_cause(cause))
        # what is moved off an interval lies at its end: how many seconds is known, but not when
        ends = np.full(len(own), repeat.start), np.full(len(own), repeat.stop)
        beyond[own] = intervals.seconds[own] - recorded.within(intervals.place[own], *ends)
    return np.where(beyond > ROUNDING_S, beyond, 0.0)


def _stay_with_workers(breakdown: Breakdown) -> Lowered:
    """Take seconds off workers that did not exist then; a worker's threads have no more than they existed."""
    repeat, path = breakdown.repeat, breakdown.path
    lanes = np.array([repeat.node(name) for name, _ in repeat.thread_rows[1]], np.int64)
    thread_start, thread_stop = existence(repeat)
    worker_start = np.full(len(repeat.places.nodes), np.inf)
    worker_stop = -worker_start
    np.minimum.at(worker_start, lanes, thread_start)
    np.maximum.at(worker_stop, lanes, thread_stop)
    at_worker = np.flatnonzero(path.is_cause(*OF_TASKS) & (path.place >= FIRST_WORKER))
    place = path.place[at_worker]
    start, stop = path.start.copy(), path.stop.copy()
    start[at_worker] = np.clip(worker_start[place], start[at_worker], stop[at_worker])
    stop[at_worker] = np.clip(worker_stop[place], start[at_worker], stop[at_worker])
    beyond = path.seconds - (stop - start)
    violated = [
        (seconds, f"the critical path has {seconds:.3f} s of {name} when it was not there")
        for node, name in zip(repeat.workers, repeat.threads, strict=True)
        if (seconds := float(beyond[path.place == node].sum())) > ROUNDING_S
    ]
    rest, lane = replace(path, start=start, stop=stop), path.lane
    parts = [rest, _undivided(path.start, start, lane), _undivided(stop, path.stop, lane)]
    path = concatenate([part.select(part.seconds > TICK_S) for part in parts]).in_order()
    return replace(breakdown, path=path), violated


def _stay_within_threads(breakdown: Breakdown) -> Lowered:
    """Take seconds of a cause off the path of which all threads together have less."""
    repeat, path = breakdown.repeat, breakdown.path
    possible = _possible_s(breakdown)
    beyond = np.zeros(len(path))
    violated: list[tuple[float, str]] = []
    for cause in CAUSES:
        own = np.flatnonzero(path.is_cause(cause))
        claimed = float(path.seconds[own].sum())
        surplus = claimed - possible[cause.code]
        if cause is UNDIVIDED or cause.group is Group.CLIENT or surplus <= _grace_s(repeat):
            continue
        sentence = (
            f"{cause.title}: {claimed:.3f} s on the critical path, {possible[cause.code]:.3f} s of threads"
        )
        violated.append((surplus, sentence))
        longest_first = own[np.argsort(-path.seconds[own], kind="stable")]
        seconds = path.seconds[longest_first]
        beyond[longest_first] = np.clip(surplus - (np.cumsum(seconds) - seconds), 0.0, seconds)
    return replace(breakdown, path=_take_off(path, beyond)), violated


def _grace_s(repeat: Repeat) -> float:
    return GRACE_S + GRACE_SHARE * repeat.makespan


def _possible_s(breakdown: Breakdown) -> Floats:
    """Return how many seconds of each cause, by its code, there is evidence of.

    That is the time of all threads; the reports of tasks' ends, which keep no thread; and what the scheduler
    reported of graphs.
    """
    repeat = breakdown.repeat
    tasks = repeat.tasks
    reports = Windows(np.arange(len(tasks)), tasks.stop, tasks.handled, np.zeros(len(tasks), np.int64))
    explain_after(repeat, reports)
    possible = np.zeros(len(CAUSES))
    for intervals in (breakdown.threads, reports.intervals()):
        possible += np.bincount(intervals.cause, intervals.seconds, minlength=len(CAUSES))
    seceded_s = np.minimum(tasks.stop, repeat.stop) - np.maximum(tasks.freed, repeat.start)
    possible[NESTED.code] += np.maximum(0.0, seceded_s).sum()  # such a task keeps no thread
    possible[NO_WORKER.code] = repeat.makespan  # the table has only the time of threads
    possible[PLAN.code] += sum(graph.materialise + graph.order + graph.state for graph in repeat.graphs)
    return possible


def _list_evidence(breakdown: Breakdown) -> Lowered:
    """Take off what cannot be listed: a person could not check it."""
    repeat, threads, path = breakdown.repeat, breakdown.threads, breakdown.path
    if not client_is_recorded(repeat):
        threads = _take_off(threads, np.where(threads.is_cause(USER), threads.seconds, 0.0))
    beyond = np.where(is_listed(repeat, path), 0.0, path.seconds)
    seconds = float(beyond.sum())
    titles = [CAUSES[code].title for code in np.unique(path.cause[beyond > 0]).tolist()]
    sentence = f"{seconds:.3f} s on the critical path rest on nothing that can be listed: {', '.join(titles)}"
    violated = [(seconds, sentence)] if seconds > LEAST_S else []
    return replace(breakdown, threads=threads, path=_take_off(path, beyond)), violated


def _take_off(intervals: Intervals, seconds: Floats) -> Intervals:
    """Move seconds at the end of each interval to ``UNDIVIDED``."""
    rows = np.flatnonzero(seconds > TICK_S)
    if not len(rows):
        return intervals
    stop = intervals.stop.copy()
    stop[rows] -= np.minimum(seconds[rows], intervals.seconds[rows])
    parts = _undivided(stop[rows], intervals.stop[rows], intervals.lane[rows])
    rest = replace(intervals, stop=stop)
    return concatenate([rest.select(rest.seconds > TICK_S), parts]).in_order()


OF_BREAKDOWNS = (
    OfBreakdown("path-adds-up", "The parts of the critical path add up to the run.", _cover_run),
    OfBreakdown(
        "threads-add-up",
        "The causes of each thread's time add up to the time for which it existed; none is negative.",
        _cover_threads,
    ),
    OfBreakdown("place-has-evidence", "A place is named only where the evidence lies.", _place_evidence),
    OfBreakdown(
        "worker-was-there",
        "No worker has more time than its threads had while it was there.",
        _stay_with_workers,
    ),
    OfBreakdown(
        "path-within-threads",
        "No cause has more seconds on the critical path than in all threads.",
        _stay_within_threads,
    ),
    OfBreakdown(
        "evidence-listed",
        "The tasks, transfers, graphs or calls that each second of the critical path rests on can be listed.",
        _list_evidence,
    ),
)
REPLAY_MATCHES = Invariant(
    "replay-matches-run", "A replay is quoted only if it misses the measured time by less than 10 %."
)
NETWORK_HAS_TRANSFERS = Invariant(
    "network-has-transfers",
    "A network that takes no time saves no more than all transfers and messages took.",
)
INVARIANTS: tuple[Invariant, ...] = (*OF_BREAKDOWNS, REPLAY_MATCHES, NETWORK_HAS_TRANSFERS)
