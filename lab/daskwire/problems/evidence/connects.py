"""Connects that failed or took long, grouped by where a node connects to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from daskwire.net.health import Connect, connects
from daskwire.net.segments import ACK, RST, SYN
from daskwire.problems.evidence.intervals import Interval, hull
from daskwire.problems.evidence.traffic import Pair, Traffic

SLOW_MS = 1000.0


class Failure(Enum):
    REFUSED = auto()
    UNANSWERED = auto()  # also if only a later SYN was answered
    SLOW = auto()


@dataclass(frozen=True)
class Target:
    """Where a node connects to."""

    pair: Pair
    address: str
    port: int


@dataclass(frozen=True)
class FailedConnects:
    """Connects of a node to one target that failed in the same way.

    Attributes:
        failure: how they failed.
        target: where the node connects to.
        flows: their flows.
        attempts: number of SYNs.
        when: from the first SYN to the answer, or to the next success or the end of the work.
        cost_s: sum of the waits if all were answered in the end; else, the length of ``when``.
        is_answered: all were answered in the end.
        at_startup: the target was not yet up: it accepts connections later.
    """

    failure: Failure
    target: Target
    flows: tuple[int, ...]
    attempts: int
    when: Interval
    cost_s: float
    is_answered: bool
    at_startup: bool


def failed_connects(traffic: Traffic) -> Iterator[FailedConnects]:
    """Yield the failed connects by failure and target, in order of the first one."""
    capture = traffic.capture
    groups: defaultdict[tuple[Failure, Target], list[Connect]] = defaultdict(list)
    successes: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, 2 * len(capture.connections)):
        _, _, address, port = capture.connections.endpoints(connect.flow)
        if failure := _failure(traffic, connect):
            groups[failure, Target(traffic.pairs[connect.flow], address, port)].append(connect)
        else:
            successes[address, port].append(connect.time_ns)
    for (failure, target), group in groups.items():
        start = min(connect.time_ns for connect in group)
        later = [time_ns for time_ns in successes[target.address, target.port] if time_ns > start]
        yield _failed(traffic, failure, target, group, min(later, default=None))


def _failure(traffic: Traffic, connect: Connect) -> Failure | None:
    if connect.refused:
        return Failure.REFUSED
    if not connect.answered:
        flags = traffic.capture.segments.flags[traffic.rows(connect.flow)]
        # A client that acknowledges is connected: the answer took a path that was not captured.
        return None if (flags & (SYN | ACK | RST) == ACK).any() else Failure.UNANSWERED
    if connect.attempts > 1:
        return Failure.UNANSWERED
    return Failure.SLOW if (connect.ms or 0.0) > SLOW_MS else None


def _failed(
    traffic: Traffic, failure: Failure, target: Target, group: list[Connect], success_ns: int | None
) -> FailedConnects:
    """Measure failed connects. Until the next success, or the end of the work, nobody could connect."""
    when = hull([(connect.time_ns, traffic.last_ns(connect.flow)) for connect in group])
    cluster = target.pair[0]
    is_answered = all(connect.answered for connect in group)
    if is_answered:
        waits = [(connect.time_ns, _answer_ns(traffic, connect)) for connect in group]
        when, cost_s = hull(waits), sum(stop - start for start, stop in waits) / 1e9
    else:
        end_ns = success_ns or min(traffic.end_ns, traffic.work.get(cluster, (0, traffic.end_ns))[1])
        when = when[0], max(when[1], end_ns)
        cost_s = (when[1] - when[0]) / 1e9
    return FailedConnects(
        failure,
        target,
        flows=tuple(connect.flow for connect in group),
        attempts=sum(connect.attempts for connect in group),
        when=when,
        cost_s=cost_s,
        is_answered=is_answered,
        at_startup=when[0] < traffic.work.get(cluster, (0, 0))[0] and success_ns is not None,
    )


def _answer_ns(traffic: Traffic, connect: Connect) -> int:
    """Return when an answered connect was complete; if that is ambiguous, when its SYN-ACK passed."""
    if connect.ms is not None:
        return connect.time_ns + round(connect.ms * 1e6)
    segments, rows = traffic.capture.segments, traffic.rows(connect.flow ^ 1)
    return int(segments.time_ns[rows[segments.flags[rows] & (SYN | ACK) == SYN | ACK][0]])
