"""A capture, its flows by the nodes that they connect, and when each cluster ran and worked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from daskwire.analysis.problems.evidence.retransmissions import (
    SECOND_NS,
    Interval,
    Late,
    Retransmissions,
    intersect,
    intervals,
    late_segments,
    merged,
    overlap,
    retransmissions,
)
from daskwire.analysis.tables.messages import outline
from daskwire.analysis.tables.participants import CLIENT, departure, participants
from daskwire.base.arrays import Flags, Ints
from daskwire.base.schema import Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.net.health import Samples, acknowledged, echo_delays, rtt_samples

Pair = tuple[str, str, str]  # cluster, source, destination
Node = tuple[str, str]  # cluster and name
GRAPHS = frozenset({"update-graph", "update-graph-hlg"})
WORK_OPS = GRAPHS | {  # ops of a cluster that computes
    "compute-task", "task-finished", "task-erred", "get_data", "gather", "key-in-memory", "heartbeat_worker",
    "shuffle_receive",
}  # fmt: skip
REGISTRATION = "register-worker"
TASK_RESULT, COMPUTATION_COMPLETE = "task-finished", "key-in-memory"
STARTUP_NS = 10 * SECOND_NS
NEVER = np.iinfo(np.int64).max
MAX_WAIT_NS = 600 * SECOND_NS  # TCP sends again after at most 120 s, Dask sends a heartbeat more often


@dataclass(frozen=True)
class Traffic:
    """A capture, and derived data that is computed on first use."""

    capture: Capture

    @cached_property
    def pairs(self) -> list[Pair]:
        """Cluster, sending node and receiving node, per flow."""
        clusters, sources = self.capture.clusters.tolist(), self.capture.sources.tolist()
        return [(clusters[flow], sources[flow], sources[flow ^ 1]) for flow in range(len(sources))]

    def by_pair(self, flows: Iterable[int]) -> dict[Pair, list[int]]:
        """Group flows by their nodes."""
        result: defaultdict[Pair, list[int]] = defaultdict(list)
        for flow in flows:
            result[self.pairs[flow]].append(flow)
        return dict(sorted(result.items()))

    def by_cluster(self, flow: Ints) -> dict[str, Ints]:
        """Group the rows of a column of flows by cluster. They stay in order."""
        names, codes = np.unique(self.capture.clusters.astype(str), return_inverse=True)
        code = codes[flow].astype(np.uint16 if len(names) < 1 << 16 else np.int64)  # 16 bits sort much faster
        order = np.argsort(code, kind="stable")
        stops = np.cumsum(np.bincount(code, minlength=len(names)))
        groups = zip(names.tolist(), np.split(order, stops[:-1]), strict=True) if len(names) else ()
        return {name: rows for name, rows in groups if len(rows)}

    def op_times(self, ops: Collection[str]) -> dict[str, Ints]:
        """Return when each cluster exchanged some ops, in order. A cluster without them is missing."""
        messages = self.capture.messages
        of_ops = messages.op_message[messages.ops_named(ops)]
        return {
            cluster: messages.time_ns[of_ops[rows]]
            for cluster, rows in self.by_cluster(messages.flow[of_ops]).items()
        }

    def due_tasks(self, cluster: str, start_ns: int, stop_ns: int) -> Ints:
        """Return the rows of the tasks that had been sent at a time and had no result until another one."""
        rows = self._tasks_of.get(cluster, np.zeros(0, np.int64))
        sent_ns, finished_ns = (times[rows] for times in self._task_times)
        return rows[(sent_ns <= start_ns) & (finished_ns >= stop_ns)]

    @cached_property
    def _tasks_of(self) -> dict[str, Ints]:
        """The rows of the table of tasks, by cluster."""
        result = defaultdict[str, list[int]](list)
        for row, cluster in enumerate(self.capture.table("tasks")["cluster"]):
            result[cluster].append(row)
        return {cluster: np.array(rows, np.int64) for cluster, rows in result.items()}

    @cached_property
    def _task_times(self) -> tuple[Ints, Ints]:
        """When each task was sent, and when it was reported; NEVER if that is not in the capture."""
        table = self.capture.table("tasks")
        sent_ns, finished_ns = (
            np.array([NEVER if time_ns is None else time_ns for time_ns in table[name]], np.int64)
            for name in ("sent_ns", "finished_ns")
        )
        return sent_ns, finished_ns

    @cached_property
    def flows(self) -> list[int]:
        """Flows with segments."""
        flows: list[int] = np.flatnonzero(np.diff(self.capture.lanes.begin)).tolist()
        return flows

    @cached_property
    def flows_of(self) -> dict[Pair, list[int]]:
        """Flows with segments, by their nodes."""
        return self.by_pair(self.flows)

    def rows(self, flow: int) -> Ints:
        """Return the segments of a flow, without copies."""
        rows = self.capture.lanes.rows(flow)
        return rows[~self.capture.copied[rows]]

    def data_rows(self, flows: Iterable[int]) -> Ints:
        """Return the segments of some flows that have payload, in order of time."""
        rows: Ints = np.sort(np.concatenate([self.rows(flow) for flow in flows]))
        return rows[self.capture.segments.length[rows] > 0]

    def data_segments(self, pair: Pair) -> int:
        """Return the number of segments with payload from one node to another."""
        return len(self.data_rows(self.flows_of[pair]))

    def first_ns(self, flow: int) -> int:
        return int(self.capture.segments.time_ns[self.capture.lanes.rows(flow)[0]])

    def last_ns(self, flow: int) -> int:
        return int(self.capture.segments.time_ns[self.capture.lanes.rows(flow)[-1]])

    def span(self, flows: Iterable[int]) -> Interval:
        """Return when the first and the last segment of some flows were captured."""
        flows = list(flows)
        return min(map(self.first_ns, flows)), max(map(self.last_ns, flows))

    @cached_property
    def transfers(self) -> Table:
        """Columns OUTLINE of the table of transfers."""
        return outline(self.capture)

    @cached_property
    def unreported(self) -> dict[tuple[str, str], list[int]]:
        """When the tasks that were never reported had been sent, by cluster and worker."""
        table, result = self.capture.table("tasks"), defaultdict[tuple[str, str], list[int]](list)
        columns = ("cluster", "worker", "sent_ns", "outcome")
        for cluster, worker, sent_ns, outcome in zip(*(table[name] for name in columns), strict=True):
            if outcome == "open":
                result[cluster, worker].append(sent_ns)
        return result

    def unreported_s(self, pair: Pair, time_ns: int) -> float:
        """Return how long the oldest task without a report had waited when scheduler and worker parted."""
        cluster, *nodes = pair
        if self.capture.scheduler_names.get(cluster) not in nodes:
            return 0.0
        times = [own for node in nodes for own in self.unreported[cluster, node] if own <= time_ns]
        return (time_ns - min(times, default=time_ns)) / 1e9

    @cached_property
    def end_ns(self) -> int:
        """Time of the last segment."""
        time_ns = self.capture.segments.time_ns
        return int(time_ns[-1]) if len(time_ns) else 0

    @cached_property
    def gaps(self) -> list[Interval]:
        """When no segment at all was captured for longer than TCP waits for anything."""
        time_ns = self.capture.segments.time_ns
        long = np.flatnonzero(np.diff(time_ns) > MAX_WAIT_NS)
        return intervals(time_ns[long], time_ns[long + 1])

    def gap_s(self, interval: Interval) -> float:
        """Return how much of an interval was not captured."""
        return overlap(interval, self.gaps) * (interval[1] - interval[0]) / SECOND_NS if self.gaps else 0.0

    def _crosses_gap(self, start_ns: Ints, stop_ns: Ints) -> Flags:
        """Select the intervals that contain a gap."""
        begins = np.array([begin for begin, _ in self.gaps], np.int64)
        return np.asarray(np.searchsorted(begins, start_ns) < np.searchsorted(begins, stop_ns))

    @cached_property
    def running(self) -> dict[str, Interval]:
        """When each cluster ran: from its first op of work to its last one."""
        times = self.op_times(WORK_OPS)
        return {cluster: (int(time_ns[0]), int(time_ns[-1])) for cluster, time_ns in times.items()}

    @cached_property
    def work(self) -> dict[str, Interval]:
        """When each cluster worked: from the end of its start-up to its shutdown.

        It starts up until its first computation is complete, or STARTUP_NS after its first result. Meanwhile
        workers import libraries. A capture without results begins with work. It shuts down after its last op;
        but if a client is still connected then, it works until the client leaves: if the client never does,
        until the end of the capture.
        """
        reported, completed = self.op_times({TASK_RESULT}), self.op_times({COMPUTATION_COMPLETE})
        result = self.running.copy()
        for cluster, (begin, last) in self.running.items():
            sessions = self.client_sessions.get(cluster, [])
            end = next((stop for start, stop in sessions if start <= last < stop), last)
            result[cluster] = begin, end
            if cluster in reported:
                latest = int(reported[cluster][0]) + STARTUP_NS
                result[cluster] = min([*completed.get(cluster, [])[:1], latest]), end
        return result

    @cached_property
    def client_sessions(self) -> dict[str, list[Interval]]:
        """When clients were connected with each cluster.

        A session ends when the client ends it. If the scheduler does, the client may still need it.
        """
        result: defaultdict[str, list[Interval]] = defaultdict(list)
        for member in participants(self.capture):
            if member.role == CLIENT:
                end = departure(self.capture, member.flow)
                has_left = end is not None and (end.flow == member.flow or end.is_announced)
                stop_ns = end.time_ns if end and has_left else self.end_ns
                result[self.pairs[member.flow][0]].append((self.first_ns(member.flow), stop_ns))
        return {cluster: merged(sessions) for cluster, sessions in result.items()}

    @cached_property
    def restarts(self) -> dict[str, list[Interval]]:
        """When each cluster shut down and started up again: workers registered after its clients had left."""
        result = {}
        registered, nothing = self.op_times({REGISTRATION}), np.zeros(0, np.int64)
        completed, reported = self.op_times({COMPUTATION_COMPLETE}), self.op_times({TASK_RESULT})
        for cluster, sessions in self.client_sessions.items():
            own = result[cluster] = list[Interval]()
            for (_, left_ns), (start_ns, stop_ns) in pairwise(sessions):
                after = [times.get(cluster, nothing) for times in (completed, reported)]
                first, result_ns = (times[times > start_ns][:1].tolist() for times in after)
                ready_ns = min([stop_ns, *first, *(time_ns + STARTUP_NS for time_ns in result_ns)])
                joined_ns = registered.get(cluster, nothing)
                if ((left_ns < joined_ns) & (joined_ns < ready_ns)).any():
                    own.append((left_ns, ready_ns))
        return result

    def is_shut_down(self, cluster: str, time_ns: int) -> bool:
        """Return whether a cluster had been shut down: it had clients, all had left, and no task was due."""
        sessions = self.client_sessions.get(cluster, [])
        if not any(start <= time_ns for start, _ in sessions):
            return False  # no client was seen by then, so nothing is known
        return not any(start <= time_ns <= stop for start, stop in sessions) and not self._is_due(
            cluster, time_ns
        )

    def _is_due(self, cluster: str, time_ns: int) -> bool:
        """Return whether a task without a report had been sent after the last client left."""
        left_ns = max((stop for _, stop in self.client_sessions[cluster] if stop <= time_ns), default=0)
        return any(
            left_ns < sent_ns <= time_ns
            for (own, _), times in self.unreported.items()
            if own == cluster
            for sent_ns in times
        )

    def while_running(self, cluster: str, interval: Interval) -> bool:
        """Return whether an interval overlaps the time in which a cluster ran; for an unknown cluster always.

        The network must not fail while workers still import libraries. Their event loops may.
        """
        return intersect(self.running.get(cluster, interval), interval)

    def during_work(self, cluster: str, interval: Interval) -> bool:
        """Return whether an interval overlaps the work of a cluster; for an unknown cluster always."""
        restarts = self.restarts.get(cluster, [])
        is_restart = any(start <= interval[0] and interval[1] <= stop for start, stop in restarts)
        return intersect(self.work.get(cluster, interval), interval) and not is_restart

    @cached_property
    def retransmissions(self) -> Retransmissions:
        """Retransmissions that were necessary, as far as their receivers say."""
        capture = self.capture
        which = ~capture.copied[capture.disorder.resent] & ~capture.needless
        events = retransmissions(capture.segments, capture.pieces, capture.disorder, which)
        return events.take(~self._crosses_gap(events.previous_ns, events.time_ns))

    @cached_property
    def late(self) -> Late:
        """Segments that filled a hole."""
        late = late_segments(self.capture.segments, self.capture.pieces, self.capture.disorder)
        return late.take(~self._crosses_gap(late.hole_ns, late.time_ns))

    @cached_property
    def stalls(self) -> dict[str, list[Interval]]:
        """When bytes of each node waited for their retransmission: its silence then is the network's."""
        events, result = self.retransmissions, defaultdict(list)
        waits = intervals(events.previous_ns, events.time_ns)
        for flow, wait in zip(events.flow.tolist(), waits, strict=True):
            for node in self.pairs[flow][1:]:
                result[node].append(wait)
        return defaultdict(list, {node: merged(own) for node, own in result.items()})

    @cached_property
    def rtts(self) -> Samples:
        """RTT between capture point and receivers."""
        capture = self.capture
        return rtt_samples(capture.segments, capture.lanes, capture.pieces, capture.disorder)

    @cached_property
    def echoes(self) -> Samples:
        """RTT between capture point and senders that have data to send."""
        return echo_delays(self.capture.segments, self.capture.lanes)

    def acknowledged(self, flow: int) -> int:
        """Return the highest stream position that the receiver of a flow acknowledged."""
        capture = self.capture
        positions = acknowledged(capture.segments, capture.lanes, capture.pieces, flow)
        return int(positions[-1]) if len(positions) else 0
