"""Detect connections that fail: refused, unanswered and slow connects, resets, workers that vanish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.dask.content import MessageKind
from daskwire.net.health import Connect, connects
from daskwire.net.segments import ACK, FIN, RST, SYN
from daskwire.problems.finding import Finding, Pair, counted, is_cheap
from daskwire.problems.view import SECOND_NS, View, hull

SLOW_MS = 1000.0
RECONNECT_NS = 30 * SECOND_NS
ANSWERED = frozenset({"get_data", "gather", "heartbeat_worker", "identity", "who_has"})  # ops with a reply
CLOSING = frozenset({"close", "close-stream"})  # ops that announce the end of a worker
REFUSED, UNANSWERED, SLOW = "refused connects", "unanswered connects", "slow connects"
VERBS = {REFUSED: "was refused", UNANSWERED: "had no answer", SLOW: "took long"}


@dataclass(frozen=True)
class Target:
    """Where a node connects to."""

    pair: Pair
    address: str
    port: int


def connections(view: View) -> Iterator[Finding]:
    yield from _failed_connects(view)
    yield from _slow_handshakes(view)
    yield from _resets(view)
    yield from _lost_workers(view)


def _failed_connects(view: View) -> Iterator[Finding]:
    """Yield one finding per kind and target."""
    capture = view.capture
    groups: defaultdict[tuple[str, Target], list[Connect]] = defaultdict(list)
    successes: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, 2 * len(capture.connections)):
        _, _, address, port = capture.connections.endpoints(connect.flow)
        if kind := _kind(view, connect):
            groups[kind, Target(view.pairs[connect.flow], address, port)].append(connect)
        else:
            successes[address, port].append(connect.time_ns)
    for (kind, target), group in groups.items():
        begin = min(connect.time_ns for connect in group)
        later = [time_ns for time_ns in successes[target.address, target.port] if time_ns > begin]
        yield _failed(view, kind, target, group, min(later, default=None))


def _kind(view: View, connect: Connect) -> str:
    if connect.refused:
        return REFUSED
    if not connect.answered:
        is_open = (view.capture.segments.flags[view.rows(connect.flow)] & (SYN | ACK | RST) == ACK).any()
        return "" if is_open else UNANSWERED  # the answer took another path
    if connect.attempts > 1:
        return UNANSWERED  # at first
    return SLOW if (connect.ms or 0.0) > SLOW_MS else ""


def _failed(view: View, kind: str, target: Target, group: list[Connect], success_ns: int | None) -> Finding:
    """Describe failed connects. Until the next success, or the end of the capture, nobody could connect."""
    when = hull([(connect.time_ns, view.last_ns(connect.flow)) for connect in group])
    is_answered = all(connect.answered for connect in group)
    if is_answered:
        waits = [(connect.time_ns, _answer_ns(view, connect)) for connect in group]
        when, cost_s = hull(waits), sum(end - begin for begin, end in waits) / 1e9
    else:
        end_ns = success_ns or min(view.end_ns, view.work.get(target.pair[0], (0, view.end_ns))[1])
        when = when[0], max(when[1], end_ns)
        cost_s = (when[1] - when[0]) / 1e9
    started_ns = view.work.get(target.pair[0], (0, 0))[0]
    at_startup = when[0] < started_ns and success_ns is not None
    is_note = at_startup or not view.during_work(target.pair[0], when) or is_cheap(cost_s)
    attempts = sum(connect.attempts for connect in group)
    how_long = f" for {cost_s:.1f} s" if kind == UNANSWERED and is_answered else ""
    what = (
        f"connecting to {target.address} port {target.port} {VERBS[kind]}{how_long}:"
        f" {counted(len(group), 'connection')}, {counted(attempts, 'SYN')}"
    )
    flows = tuple(connect.flow for connect in group)
    return Finding(kind, what, target.pair, when, cost_s, 0.95, len(group), flows, is_note)


def _answer_ns(view: View, connect: Connect) -> int:
    """Return when an answered connect was complete; if that is ambiguous, when its SYN-ACK passed."""
    if connect.ms is not None:
        return connect.time_ns + round(connect.ms * 1e6)
    segments, rows = view.capture.segments, view.rows(connect.flow ^ 1)
    return int(segments.time_ns[rows[segments.flags[rows] & (SYN | ACK) == SYN | ACK][0]])


def _slow_handshakes(view: View) -> Iterator[Finding]:
    """Yield pairs in which one side sent its half of Dask's handshake late: its event loop was busy."""
    messages = view.capture.messages
    first: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for index in np.flatnonzero(messages.kind == MessageKind.HANDSHAKE).tolist():
        flow = int(messages.flow[index])
        first[flow // 2].setdefault(flow, int(messages.time_ns[index]))
    groups: defaultdict[Pair, list[tuple[int, int, int]]] = defaultdict(list)
    for times in first.values():
        begin, end = min(times.values()), max(times.values())
        if len(times) == 2 and (end - begin) / 1e6 > SLOW_MS:
            late = max(times, key=lambda flow: times[flow])
            groups[view.pairs[late]].append((begin, end, late))
    for pair, group in sorted(groups.items()):
        waits = [(begin, end) for begin, end, _ in group]
        longest_s = max(end - begin for begin, end in waits) / 1e9
        what = f"its half of Dask's handshake came up to {longest_s:.1f} s after the peer's"
        cost_s = sum(end - begin for begin, end in waits) / 1e9
        flows = tuple(flow for _, _, flow in group)
        is_note = not view.during_work(pair[0], hull(waits))
        yield Finding(SLOW, what, pair, hull(waits), cost_s, 0.8, len(group), flows, is_note)


def _resets(view: View) -> Iterator[Finding]:
    """Yield pairs whose connections were reset: problems if they were needed, else notes."""
    capture = view.capture
    segments = capture.segments
    rows = np.flatnonzero((segments.flags & RST != 0) & ~capture.copied)
    _, first = np.unique(segments.flow[rows] >> 1, return_index=True)
    openings = _openings(view)
    groups: defaultdict[tuple[bool, Pair], list[tuple[int, int, float]]] = defaultdict(list)
    for row in rows[first].tolist():
        flow, time_ns = int(segments.flow[row]), int(segments.time_ns[row])
        if flow // 2 not in capture.conversations:
            continue
        pair = view.pairs[flow]
        waited_s = max(
            _outstanding_s(view, flow // 2, time_ns),
            _unreported_s(view, pair, time_ns),
            _unacknowledged_s(view, flow // 2, time_ns),
        )
        again = [t for t in openings[frozenset(pair[1:])] if time_ns < t < time_ns + RECONNECT_NS]
        until_s = (min(again) - time_ns) / 1e9 if again else 0.0
        was_needed = view.during_work(pair[0], (time_ns, time_ns)) and bool(waited_s or again)
        groups[was_needed, pair].append((time_ns, flow, waited_s + until_s))
    for (was_needed, pair), resets in sorted(groups.items()):
        reason = ", with messages outstanding or followed by a new connection" if was_needed else ""
        what = f"reset {counted(len(resets), 'connection')} that carried Dask{reason}"
        times, flows = [time_ns for time_ns, _, _ in resets], tuple(flow for _, flow, _ in resets)
        cost_s = sum(cost for _, _, cost in resets)
        when = min(times), max(times)
        yield Finding("mid-stream reset", what, pair, when, cost_s, 0.9, len(resets), flows, not was_needed)


def _lost_workers(view: View) -> Iterator[Finding]:
    """Yield workers whose host, before the scheduler's, closed their connection in the middle of the work.

    A worker that closes says so before; that of a process that was killed is closed by its kernel.
    """
    segments, messages = view.capture.segments, view.capture.messages
    announced = messages.flow[messages.op_message[messages.ops_named(CLOSING)]] >> 1
    for message in messages.op_message[messages.ops_named({"register-worker"})].tolist():
        flow = int(messages.flow[message])
        pair = view.pairs[flow]
        rows = np.sort(np.concatenate([view.rows(flow), view.rows(flow ^ 1)]))
        ends = rows[segments.flags[rows] & (FIN | RST) != 0]
        if not len(ends) or segments.flow[ends[0]] != flow or (announced == flow >> 1).any():
            continue
        end_ns = int(segments.time_ns[ends[0]])
        begin_ns, stop_ns = view.work.get(pair[0], (0, 0))
        if begin_ns < end_ns < stop_ns - SECOND_NS:
            what = "its host closed the connection with the scheduler, and the worker had not announced it"
            cost_s = _unreported_s(view, pair, end_ns)
            yield Finding("lost worker", what, pair, (end_ns, end_ns), cost_s, 0.8, flows=(flow,))


def _unreported_s(view: View, pair: Pair, time_ns: int) -> float:
    """Return how long the oldest task without a report had waited at a reset between scheduler and worker."""
    cluster, *nodes = pair
    if view.capture.scheduler_names.get(cluster) not in nodes:
        return 0.0
    sent_ns = [sent for node in nodes for sent in view.unreported[cluster, node] if sent <= time_ns]
    return (time_ns - min(sent_ns, default=time_ns)) / 1e9


def _unacknowledged_s(view: View, connection: int, time_ns: int) -> float:
    """Return how long data of a reset connection had been sent again: its receiver took none."""
    events = view.retransmissions
    own = (events.flow >> 1 == connection) & (events.previous_ns <= time_ns) & (events.time_ns >= time_ns)
    return float((events.time_ns[own].max(initial=time_ns) - time_ns) / 1e9)


def _openings(view: View) -> defaultdict[frozenset[str], list[int]]:
    """Return when connections between two nodes were opened."""
    result: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    for flow in view.flows:
        if flow % 2 == 0 and view.capture.lives.opened[flow // 2]:
            result[frozenset(view.pairs[flow][1:])].append(view.first_ns(flow))
    return result


def _outstanding_s(view: View, connection: int, time_ns: int) -> float:
    """Return how long the oldest incomplete message or unanswered request had waited at a reset."""
    messages = view.capture.messages
    own = np.flatnonzero(messages.flow >> 1 == connection)
    waiting = own[messages.seen[own] < messages.size[own]].tolist()
    requests = own[(messages.kind[own] == MessageKind.REQUEST) & (messages.answer[own] < 0)]
    for message in requests.tolist():
        index = int(np.searchsorted(messages.op_message, message))
        if messages.op_name[index] in ANSWERED:
            waiting.append(message)
    begin = min((int(messages.time_ns[message]) for message in waiting), default=time_ns)
    return (time_ns - begin) / 1e9
