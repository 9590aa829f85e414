"""All that the kinds of problems read: losses, connects, heartbeats, delays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from daskwire.analysis.problems.evidence.connects import FailedConnects, Failure, failed_connects
from daskwire.analysis.problems.evidence.losses import Losses, divide_losses
from daskwire.analysis.problems.evidence.retransmissions import SECOND_NS, Interval, intervals, overlap
from daskwire.analysis.problems.evidence.traffic import TASK_RESULT, Node, Traffic
from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.nodes import Endpoint

# Which round trips may contain a delayed ACK, and how long a sender pauses.

PAUSE_NS = 100_000_000  # a longer gap is a pause of the sender; 64 kB take this long at 5 Mbit/s
DELAYED_ACK_NS = ((35_000_000, 60_000_000), (180_000_000, 220_000_000))  # ranges on common systems


def looks_delayed(rtt_ns: Ints) -> Flags:
    """Return which samples may contain a delayed ACK."""
    delayed = [(rtt_ns >= low) & (rtt_ns <= high) for low, high in DELAYED_ACK_NS]
    return np.asarray(np.any(delayed, axis=0))


# Late heartbeats of workers, and what the workers did meanwhile: other messages, or nothing at all.

SILENT_NS = SECOND_NS
LATE_RATIO = 2.0  # more than twice the requested interval
LATE_MS = 1000.0  # and this much more than it, if the worker sends other messages


@dataclass
class Lateness:
    """Late heartbeats of a worker.

    Attributes:
        number: number of intervals between its heartbeats.
        silent: pauses in which the worker sent nothing at all.
        shared: those of them in which all other workers of the cluster paused as well.
        late: late intervals in which it sent other messages.
        requested_ms: the interval that the scheduler requested.
    """

    number: int = 0
    silent: list[Interval] = field(default_factory=list)
    shared: list[Interval] = field(default_factory=list)
    late: list[Interval] = field(default_factory=list)
    requested_ms: float = 0.0


def heartbeat_lateness(traffic: Traffic) -> dict[Node, Lateness]:
    """Find the late heartbeats of each worker, sorted by worker."""
    beats = traffic.capture.table("heartbeats")
    groups: defaultdict[Node, list[tuple[int, float]]] = defaultdict(list)
    columns = ("cluster", "worker", "time_ns", "announced_ms")
    for cluster, worker, time_ns, announced_ms in zip(*(beats[name] for name in columns), strict=True):
        groups[cluster, worker].append((time_ns, announced_ms or 0.0))
    sent_ns = {node: _sent_ns(traffic, node) for node in groups}
    pauses = {node: _pauses(times) for node, times in sent_ns.items()}
    result = {}
    for node, own in sorted(groups.items()):
        lateness = result[node] = _lateness(traffic, node, own, sent_ns[node])
        others = [pauses[other] for other in groups if other[0] == node[0] and other != node]
        lateness.shared = [
            pause
            for pause in lateness.silent
            if others and all(overlap(pause, other) > 0.5 for other in others)
        ]
    return result


def _sent_ns(traffic: Traffic, node: Node) -> Ints:
    """Return when a node sent messages, in order."""
    messages = traffic.capture.messages
    flows = [flow for flow in traffic.flows if traffic.pairs[flow][:2] == node]
    return messages.time_ns[np.isin(messages.flow, flows)]


def _pauses(sent_ns: Ints) -> list[Interval]:
    """Return when a node sent nothing for SILENT_NS or more."""
    long = np.flatnonzero(np.diff(sent_ns) >= SILENT_NS)
    return intervals(sent_ns[long], sent_ns[long + 1])


def _lateness(traffic: Traffic, node: Node, beats: list[tuple[int, float]], sent_ns: Ints) -> Lateness:
    """Find the late heartbeats of a worker, and whether it was silent meanwhile."""
    cluster, worker = node
    result, first_result_ns = Lateness(), _first_result_ns(traffic, node)
    last_ns = max([*sent_ns[-1:].tolist(), beats[-1][0]])  # a heartbeat that never came may be late then
    for (begin, requested_ms), (end, _) in pairwise([*beats, (last_ns, 0.0)]):
        interval = begin, end
        if not requested_ms or begin < first_result_ns or not traffic.during_work(cluster, interval):
            continue
        waited_ms = (end - begin) / 1e6
        is_late = waited_ms >= max(LATE_RATIO * requested_ms, requested_ms + LATE_MS)
        result.number += is_late or interval[1] != last_ns
        if waited_ms < LATE_RATIO * requested_ms or overlap(interval, traffic.stalls[worker]) > 0.5:
            continue
        inside = sent_ns[(sent_ns > begin) & (sent_ns < end)]
        pause = max(pairwise([begin, *inside.tolist(), end]), key=lambda pair: pair[1] - pair[0])
        if pause[1] - pause[0] >= max(SILENT_NS, 0.5 * (end - begin)):
            result.silent.append(pause)
        elif is_late:
            result.late.append(interval)
            result.requested_ms = requested_ms
    return result


def _first_result_ns(traffic: Traffic, node: Node) -> int:
    """Return when a worker reported its first task, before which it starts up."""
    messages = traffic.capture.messages
    for message in messages.op_message[messages.ops_named({TASK_RESULT})].tolist():
        if traffic.pairs[messages.flow[message]][:2] == node:
            return int(messages.time_ns[message])
    return 0


# All that the kinds of problems read. What a single kind needs is in its own module.

SCHEDULER_PORT = 8786  # the default
CUT_MESSAGE_SHARE = 0.02
MIN_ONE_WAY_SEGMENTS = 5  # a connection with fewer may have ended before its answer


class Evidence(Traffic):
    """The traffic of a capture, and what several kinds of problems derive from it."""

    @cached_property
    def losses(self) -> Losses:
        """Packets that did not arrive, by the problem that explains them."""
        return divide_losses(self)

    @cached_property
    def failed_connects(self) -> list[FailedConnects]:
        return list(failed_connects(self))

    def connects_that(self, failure: Failure) -> list[FailedConnects]:
        return [group for group in self.failed_connects if group.failure == failure]

    def is_dask_port(self, address: str, port: int) -> bool:
        """Return whether Dask listens here: by its messages, or by the scheduler's default port."""
        return port == SCHEDULER_PORT or (address, port) in self._dask_endpoints

    @cached_property
    def _dask_endpoints(self) -> set[Endpoint]:
        """Both ends of all connections that carry Dask, and what its messages name."""
        nodes, senders = self.capture.nodes, self.capture.senders
        ends = {senders[2 * number + side] for number in self.capture.conversations for side in (0, 1)}
        return ends | set(nodes.schedulers) | set(nodes.listening)

    @cached_property
    def lateness(self) -> dict[Node, Lateness]:
        """Late heartbeats of each worker, sorted by worker."""
        return heartbeat_lateness(self)

    @cached_property
    def one_way(self) -> tuple[list[int], int]:
        """The flows whose opposite direction was not captured, and the number of complete connections."""
        number = np.diff(self.capture.lanes.begin)
        missing = self.capture.extents.missing
        single = [
            flow
            for flow in self.flows
            if number[flow] >= MIN_ONE_WAY_SEGMENTS and not number[flow ^ 1] and missing[flow ^ 1] > 0
        ]
        return single, sum(1 for flow in self.flows if flow % 2 == 0 and number[flow ^ 1])

    @cached_property
    def is_one_way(self) -> bool:
        """Whether nearly all connections have one direction only: then the capture point is wrong."""
        single, complete = self.one_way
        return len(single) > 9 * complete

    @cached_property
    def is_cut(self) -> bool:
        """Whether the snaplen cost the content of more than a few messages."""
        messages = self.capture.messages
        return int((messages.kind == MessageKind.CUT).sum()) >= CUT_MESSAGE_SHARE * max(len(messages), 1)
