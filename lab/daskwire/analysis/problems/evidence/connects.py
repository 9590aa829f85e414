"""Connects that failed or took long, grouped by where a node connects to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from daskwire.analysis.problems.evidence.retransmissions import Interval, hull
from daskwire.analysis.problems.evidence.traffic import Pair, Traffic
from daskwire.decoder.net.health import Connect, connects
from daskwire.decoder.net.segments import ACK, RST, SYN

SLOW_MS = 1000.0


class Failure(Enum):
    REFUSED = auto()
    ABORTED = auto()  # the answer was met by an RST: a firewall rejected it
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
        is_exempt: during start-up, when the target was not up yet, or after shutdown.
        is_final: nobody connected with the target in the whole capture.
    """

    failure: Failure
    target: Target
    flows: tuple[int, ...]
    attempts: int
    when: Interval
    cost_s: float
    is_answered: bool
    is_exempt: bool
    is_final: bool


def failed_connects(traffic: Traffic) -> Iterator[FailedConnects]:
    """Yield the failed connects by failure and target, those that are exempt separately."""
    capture = traffic.capture
    groups: defaultdict[tuple[Failure, Target], list[Connect]] = defaultdict(list)
    accepted: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, 2 * len(capture.connections)):
        _, _, address, port = capture.connections.endpoints(connect.flow)
        failure = _failure(traffic, connect)
        if failure:
            groups[failure, Target(traffic.pairs[connect.flow], address, port)].append(connect)
        if (connect.answered and failure != Failure.ABORTED) or not failure:
            accepted[address, port].append(_end_ns(traffic, connect))
    for (failure, target), group in groups.items():
        accepted_ns = sorted(accepted[target.address, target.port])
        for is_exempt in (False, True):
            if part := [c for c in group if _is_exempt(traffic, target, c, accepted_ns) == is_exempt]:
                yield _failed(traffic, failure, target, part, accepted_ns, is_exempt)


def _is_exempt(traffic: Traffic, target: Target, connect: Connect, accepted_ns: list[int]) -> bool:
    """Return whether a connect failed because its cluster was starting up, or had been shut down.

    At start-up the target has not accepted a connection yet, and does so later.
    """
    cluster = target.pair[0]
    start_ns, stop_ns = traffic.work.get(cluster, (0, connect.time_ns))
    if connect.time_ns > stop_ns or traffic.is_shut_down(cluster, connect.time_ns):
        return True
    if connect.answered and _is_aborted(traffic, connect.flow):
        return False  # its target was up
    is_before_first = bool(accepted_ns) and accepted_ns[0] >= _end_ns(traffic, connect)
    return connect.time_ns < start_ns and is_before_first


def _failure(traffic: Traffic, connect: Connect) -> Failure | None:
    if connect.refused:
        return Failure.REFUSED
    if not connect.answered:
        flags = traffic.capture.segments.flags[traffic.rows(connect.flow)]
        # A client that acknowledges is connected: the answer took a path that was not captured.
        return None if (flags & (SYN | ACK | RST) == ACK).any() else Failure.UNANSWERED
    if _is_aborted(traffic, connect.flow):
        return Failure.ABORTED
    if connect.attempts > 1:
        return Failure.UNANSWERED
    return Failure.SLOW if (connect.ms or 0.0) > SLOW_MS else None


def _is_aborted(traffic: Traffic, flow: int) -> bool:
    """Return whether the host that sent the SYN sent an RST next, and nothing else."""
    flags = traffic.capture.segments.flags[traffic.rows(flow)]
    later = flags[flags & SYN == 0]
    return len(later) > 0 and bool((later & RST != 0).all())


def _failed(
    traffic: Traffic,
    failure: Failure,
    target: Target,
    group: list[Connect],
    accepted_ns: list[int],
    is_exempt: bool,
) -> FailedConnects:
    """Measure failed connects. Until the next success, or the end of the work, nobody could connect."""
    when = hull([(connect.time_ns, traffic.last_ns(connect.flow)) for connect in group])
    cluster = target.pair[0]
    is_answered = failure != Failure.ABORTED and all(connect.answered for connect in group)
    if is_answered:
        waits = [(connect.time_ns, _end_ns(traffic, connect)) for connect in group]
        when, cost_s = hull(waits), sum(stop - start for start, stop in waits) / 1e9
    else:
        later = [time_ns for time_ns in accepted_ns if time_ns > when[0]]
        end_ns = min(traffic.end_ns, traffic.work.get(cluster, (0, traffic.end_ns))[1])
        when = when[0], max(when[1], min(later, default=end_ns))
        cost_s = (when[1] - when[0]) / 1e9
    return FailedConnects(
        failure,
        target,
        flows=tuple(connect.flow for connect in group),
        attempts=sum(connect.attempts for connect in group),
        when=when,
        cost_s=cost_s,
        is_answered=is_answered,
        is_exempt=is_exempt,
        is_final=not accepted_ns,
    )


def _end_ns(traffic: Traffic, connect: Connect) -> int:
    """Return when a connect was complete, or when its SYN-ACK passed; without an answer, when it began."""
    if connect.ms is not None:
        return connect.time_ns + round(connect.ms * 1e6)
    if not connect.answered:
        return connect.time_ns
    segments, rows = traffic.capture.segments, traffic.rows(connect.flow ^ 1)
    return int(segments.time_ns[rows[segments.flags[rows] & (SYN | ACK) == SYN | ACK][0]])
