"""Detect processes that do not keep up: zero windows, slow or blocked event loops, late heartbeats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from daskwire.arrays import Ints
from daskwire.net.segments import FIN, RST, SYN
from daskwire.problems.finding import Finding, Interval, Pair, counted, is_cheap
from daskwire.problems.view import (
    RESULT,
    SECOND_NS,
    View,
    hull,
    intervals,
    overlap,
    seconds,
    seconds_by_flow,
)

ANSWER_MS = 300.0  # until the scheduler answers a heartbeat
SILENT_NS = SECOND_NS
LATE_RATIO, LATE_MS = 2.0, 1000.0  # more than twice the requested interval, and that much more than it
LATE_NUMBER, LATE_SHARE = 3, 0.25
Node = tuple[str, str]  # cluster and name


@dataclass
class Lateness:
    """Late heartbeats of a worker.

    Attributes:
        number: number of intervals between its heartbeats.
        silent: pauses in which the worker sent nothing at all.
        late: late intervals in which it sent other messages.
        requested_ms: the interval that the scheduler requested.
    """

    number: int = 0
    silent: list[Interval] = field(default_factory=list)
    late: list[Interval] = field(default_factory=list)
    requested_ms: float = 0.0


def loops(view: View) -> Iterator[Finding]:
    yield from _zero_windows(view)
    yield from _schedulers(view)
    yield from _workers(view)
    yield from _erred(view)
    yield from _busy(view)


def _zero_windows(view: View) -> Iterator[Finding]:
    """Yield receivers that stopped their peers."""
    segments = view.capture.segments
    closed = (segments.window == 0) & (segments.flags & (RST | SYN | FIN) == 0) & ~view.capture.copied
    groups: defaultdict[Node, list[tuple[int, Interval]]] = defaultdict(list)
    for flow in np.unique(segments.flow[closed]).tolist():
        cluster, node, _ = view.pairs[flow]
        groups[cluster, node] += [(flow, w) for w in _closed(view, flow) if view.during_work(cluster, w)]
    for (cluster, node), episodes in sorted(groups.items()):
        if not episodes:
            continue
        flows, waits = zip(*episodes, strict=True)
        peers = sorted({view.pairs[flow][2] for flow in flows})
        cost_s = seconds_by_flow(flows, waits)
        longest_s = max(end - begin for begin, end in waits) / 1e9
        what = (
            f"its process did not read: {counted(len(waits), 'time')} a window of 0, {cost_s:.2f} s in all"
            f" (longest {longest_s:.2f} s); waiting: {', '.join(peers)}"
        )
        pair = cluster, node, peers[0] if len(peers) == 1 else ""
        yield Finding(
            "zero window", what, pair, hull(list(waits)), cost_s, 0.95, len(waits), tuple(sorted(set(flows))),
            is_cheap(cost_s),
        )  # fmt: skip


def _closed(view: View, flow: int) -> list[Interval]:
    """Return when the sender of a flow had a window of 0 while its peer had more to send."""
    segments, rows = view.capture.segments, view.rows(flow)
    rows = rows[segments.flags[rows] & (RST | SYN | FIN) == 0]
    zero = segments.window[rows] == 0
    sent_ns = segments.time_ns[view.data_rows([flow ^ 1])]
    last_ns = max(view.last_ns(f) for f in (flow, flow ^ 1) if f in view.flows)
    result = []
    for begin in np.flatnonzero(zero & ~np.append(False, zero[:-1])).tolist():
        opened = np.flatnonzero(~zero[begin:])
        begin_ns = int(segments.time_ns[rows[begin]])
        end_ns = int(segments.time_ns[rows[begin + opened[0]]]) if len(opened) else last_ns
        following = int(np.searchsorted(sent_ns, end_ns))
        goes_on = following < len(sent_ns) and sent_ns[following] - end_ns < SECOND_NS
        if end_ns > begin_ns and (goes_on or not len(opened)):
            result.append((begin_ns, end_ns))
    return result


def _schedulers(view: View) -> Iterator[Finding]:
    """Yield schedulers that answer heartbeats late, unless the network delayed them."""
    beats = view.capture.table("heartbeats")
    groups: defaultdict[str, list[tuple[Interval, str]]] = defaultdict(list)
    columns = ("cluster", "worker", "time_ns", "answer_ms")
    for cluster, worker, time_ns, answer_ms in zip(*(beats[name] for name in columns), strict=True):
        if answer_ms is not None and answer_ms > ANSWER_MS:
            wait = time_ns, time_ns + round(answer_ms * 1e6)
            if view.during_work(cluster, wait) and overlap(wait, view.stalls[worker]) < 0.5:
                groups[cluster].append((wait, worker))
    for cluster, late in sorted(groups.items()):
        waits = [wait for wait, _ in late]
        longest_ms = max(end - begin for begin, end in waits) / 1e6
        workers = len({worker for _, worker in late})
        what = (
            f"answered {counted(len(late), 'heartbeat')} of {counted(workers, 'worker')} after more than"
            f" {ANSWER_MS:.0f} ms (up to {longest_ms:,.0f} ms)"
        )
        pair = cluster, view.capture.scheduler_names.get(cluster, ""), ""
        cost_s = seconds(waits)
        yield Finding(
            "slow scheduler loop", what, pair, hull(waits), cost_s, 0.9, len(late), is_note=is_cheap(cost_s)
        )


def _workers(view: View) -> Iterator[Finding]:
    """Yield workers that sent nothing for a while, and others whose heartbeats came late."""
    beats = view.capture.table("heartbeats")
    groups: defaultdict[Node, list[tuple[int, float]]] = defaultdict(list)
    columns = ("cluster", "worker", "time_ns", "announced_ms")
    for cluster, worker, time_ns, announced_ms in zip(*(beats[name] for name in columns), strict=True):
        groups[cluster, worker].append((time_ns, announced_ms or 0.0))
    sent_ns = {node: _sent_ns(view, node) for node in groups}
    pauses = {node: _pauses(times) for node, times in sent_ns.items()}
    for node, own in sorted(groups.items()):
        lateness = _lateness(view, node, own, sent_ns[node])
        others = [pauses[other] for other in groups if other[0] == node[0] and other != node]
        yield from _blocked(view, node, lateness.silent, others)
        yield from _late(node, lateness)


def _sent_ns(view: View, node: Node) -> Ints:
    """Return when a node sent messages, in order."""
    messages = view.capture.messages
    flows = [flow for flow in view.flows if view.pairs[flow][:2] == node]
    return messages.time_ns[np.isin(messages.flow, flows)]


def _pauses(sent_ns: Ints) -> list[Interval]:
    """Return when a node sent nothing for SILENT_NS or more."""
    long = np.flatnonzero(np.diff(sent_ns) >= SILENT_NS)
    return intervals(sent_ns[long], sent_ns[long + 1])


def _lateness(view: View, node: Node, beats: list[tuple[int, float]], sent_ns: Ints) -> Lateness:
    """Find the late heartbeats of a worker, and whether it was silent meanwhile."""
    cluster, worker = node
    result, first_result_ns = Lateness(), _first_result_ns(view, node)
    last_ns = max([*sent_ns[-1:].tolist(), beats[-1][0]])  # a heartbeat that never came may be late then
    for (begin, requested_ms), (end, _) in pairwise([*beats, (last_ns, 0.0)]):
        interval = begin, end
        if not requested_ms or begin < first_result_ns or not view.during_work(cluster, interval):
            continue
        is_late = (end - begin) / 1e6 >= max(LATE_RATIO * requested_ms, requested_ms + LATE_MS)
        result.number += is_late or interval[1] != last_ns
        if not is_late or overlap(interval, view.stalls[worker]) > 0.5:
            continue
        inside = sent_ns[(sent_ns > begin) & (sent_ns < end)]
        pause = max(pairwise([begin, *inside.tolist(), end]), key=lambda pair: pair[1] - pair[0])
        if pause[1] - pause[0] >= max(SILENT_NS, 0.5 * (end - begin)):
            result.silent.append(pause)
        else:
            result.late.append(interval)
            result.requested_ms = requested_ms
    return result


def _first_result_ns(view: View, node: Node) -> int:
    """Return when a worker reported its first task, before which it starts up."""
    messages = view.capture.messages
    for message in messages.op_message[messages.ops_named({RESULT})].tolist():
        if view.pairs[messages.flow[message]][:2] == node:
            return int(messages.time_ns[message])
    return 0


def _blocked(
    view: View, node: Node, silent: list[Interval], others: list[list[Interval]]
) -> Iterator[Finding]:
    """Yield the pauses of a worker, separately those that all workers share.

    If all workers pause together, they import a library, or the machine that they share is overloaded.
    """
    shared = [pause for pause in silent if others and all(overlap(pause, other) > 0.5 for other in others)]
    for pauses in (shared, [pause for pause in silent if pause not in shared]):
        if not pauses:
            continue
        cost_s, longest_s = seconds(pauses), max(end - begin for begin, end in pauses) / 1e9
        times = f" ({len(pauses)} times, {cost_s:.1f} s in all)" if len(pauses) > 1 else ""
        together = ", together with all other workers" if pauses is shared else ""
        what = f"sent no message for {longest_s:.1f} s{times}, though heartbeats were due{together}"
        flows = tuple(flow for flow in view.flows if view.pairs[flow][:2] == node)
        yield Finding(
            "blocked worker loop", what, (*node, ""), hull(pauses), cost_s, 0.9, len(pauses), flows,
            pauses is shared,
        )  # fmt: skip


def _late(node: Node, lateness: Lateness) -> Iterator[Finding]:
    waits = lateness.late
    if not waits:
        return
    longest_ms = max(end - begin for begin, end in waits) / 1e6
    what = (
        f"{len(waits)} of {lateness.number} heartbeats came after up to {longest_ms:,.0f} ms, although the"
        f" scheduler requested {lateness.requested_ms:.0f} ms and the worker sent other messages"
    )
    cost_s = sum((end - begin) / 1e9 - lateness.requested_ms / 1e3 for begin, end in waits)
    is_note = len(waits) < LATE_NUMBER and len(waits) < LATE_SHARE * lateness.number
    yield Finding("late heartbeats", what, (*node, ""), hull(waits), cost_s, 0.9, len(waits), is_note=is_note)


def _erred(view: View) -> Iterator[Finding]:
    tasks = view.capture.table("tasks")
    groups: defaultdict[Pair, list[int]] = defaultdict(list)
    columns = ("cluster", "worker", "outcome", "finished_ns")
    for cluster, worker, outcome, time_ns in zip(*(tasks[name] for name in columns), strict=True):
        if outcome == "erred":
            scheduler = view.capture.scheduler_names.get(cluster, "")
            groups[cluster, worker, scheduler].append(time_ns)
    for pair, times in sorted(groups.items()):
        what = f"{counted(len(times), 'task')} ended with an exception"
        yield Finding("erred tasks", what, pair, (min(times), max(times)), number=len(times))


def _busy(view: View) -> Iterator[Finding]:
    table = view.transfers
    rows = zip(*(table[name] for name in ("cluster", "source", "destination", "status")), strict=True)
    busy = Counter(tuple(pair) for *pair, status in rows if status == "busy")
    for (cluster, source, destination), number in sorted(busy.items()):
        what = f"put off {counted(number, 'request')} for data: too many at once"
        yield Finding("busy workers", what, (cluster, source, destination), number=number, is_note=True)
