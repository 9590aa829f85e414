"""Clusters that exchange nothing but heartbeats although work is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS, Interval, hull, intervals, seconds
from daskwire.analysis.problems.finding import Finding, Kind, counted
from daskwire.base.arrays import NONE, Flags
from daskwire.decoder.dask.framing.content import MessageKind

MIN_STANDSTILL_S = 5.0
IDLE_OPS = frozenset({  # sent at intervals by a cluster that does nothing, or that looks for lost data
    "heartbeat_worker", "heartbeat-client", "keep-alive", "identity", "who_has", "request-refresh-who-has",
    "missing-data",
})  # fmt: skip
GRAPHS = frozenset({"update-graph", "update-graph-hlg"})
PROGRESS = frozenset({"compute-task", "task-finished", "task-erred", "key-in-memory"})


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per cluster, with all its standstills."""
    if evidence.is_cut:
        return  # the messages that show progress may be cut
    idle = _idle_messages(evidence)
    for cluster in evidence.running:
        pauses = [
            (pause, what)
            for pause in _pauses(evidence, cluster, idle)
            if not evidence.is_shut_down(cluster, pause[0])
            and (what := _open_tasks(evidence, cluster, pause) or _waiting_graph(evidence, cluster, pause))
        ]
        if pauses:
            yield _finding(cluster, pauses)


def _finding(cluster: str, pauses: list[tuple[Interval, str]]) -> Finding:
    waits = [pause for pause, _ in pauses]
    (start_ns, stop_ns), what = max(pauses, key=lambda own: own[0][1] - own[0][0])
    cost_s = seconds(waits)
    times = f" ({len(waits)} times, {cost_s:.1f} s in all)" if len(waits) > 1 else ""
    what = f"only heartbeats for {(stop_ns - start_ns) / SECOND_NS:.1f} s{times}: {what}"
    return Finding(KIND, what, (cluster, "", ""), hull(waits), cost_s, 0.85, len(waits))


def _idle_messages(evidence: Evidence) -> Flags:
    """Select handshakes, and messages that contain nothing but IDLE_OPS, with their answers."""
    messages = evidence.capture.messages
    number = np.bincount(messages.op_message, minlength=len(messages))
    idle_ops = messages.op_message[messages.ops_named(IDLE_OPS)]
    idle = (number > 0) & (np.bincount(idle_ops, minlength=len(messages)) == number)
    answers = messages.answer[idle]
    idle[answers[answers != NONE]] = True
    return np.asarray(idle | (messages.kind == MessageKind.HANDSHAKE))


def _pauses(evidence: Evidence, cluster: str, idle: Flags) -> list[Interval]:
    """Return when a cluster that ran sent no message that does work, for MIN_STANDSTILL_S or more."""
    capture, messages = evidence.capture, evidence.capture.messages
    rows = np.flatnonzero((capture.clusters == cluster)[messages.flow] & ~idle)
    if not len(rows):
        return []
    stop_ns = messages.end_ns[rows].copy()
    for index in np.flatnonzero(~messages.complete[rows]).tolist():  # they may still be on their way
        stop_ns[index] = evidence.last_ns(int(messages.flow[rows[index]]))
    start_ns = np.append(messages.time_ns[rows], evidence.running[cluster][1])
    before_ns = np.maximum.accumulate(stop_ns)
    long = np.flatnonzero(start_ns[1:] - before_ns >= MIN_STANDSTILL_S * SECOND_NS)
    return intervals(before_ns[long], start_ns[1:][long])


def _open_tasks(evidence: Evidence, cluster: str, pause: Interval) -> str:
    """Say which workers had tasks during a pause, if all of them report that they execute none."""
    table = evidence.capture.table("tasks")
    columns = (table[name] for name in ("cluster", "worker", "sent_ns", "finished_ns"))
    due = Counter(
        worker
        for own, worker, sent_ns, finished_ns in zip(*columns, strict=True)
        if own == cluster
        and sent_ns is not None
        and sent_ns <= pause[0]
        and (finished_ns is None or finished_ns >= pause[1])
    )
    executing = _executing(evidence, cluster, pause)
    if not due or any(executing.get(worker) != {0} for worker in due):
        return ""
    number = sum(due.values())
    return f"{counted(number, 'task')} had no result, but {', '.join(sorted(due))} executed none"


def _executing(evidence: Evidence, cluster: str, pause: Interval) -> dict[str, set[int | None]]:
    """Return how many tasks each worker executed, as its heartbeats during a pause say."""
    table = evidence.capture.table("heartbeats")
    result: dict[str, set[int | None]] = {}
    columns = (table[name] for name in ("cluster", "worker", "time_ns", "executing"))
    for own, worker, time_ns, executing in zip(*columns, strict=True):
        if own == cluster and pause[0] < time_ns <= pause[1]:
            result.setdefault(worker, set()).add(executing)
    return result


def _waiting_graph(evidence: Evidence, cluster: str, pause: Interval) -> str:
    """Describe the graph that was the last sign of work before a pause, if there is one."""
    capture, messages = evidence.capture, evidence.capture.messages
    ops = messages.ops_named(GRAPHS | PROGRESS)
    of_ops = messages.op_message[ops]
    before = (capture.clusters == cluster)[messages.flow[of_ops]] & (messages.end_ns[of_ops] <= pause[0])
    if not before.any() or messages.op_name[int(ops[before][-1])] not in GRAPHS:
        return ""
    client = evidence.pairs[int(messages.flow[of_ops[before][-1]])][1]
    return f"{client} had sent a graph, and the scheduler sent none of its tasks to a worker"


KIND = Kind(
    name="standstill",
    meaning="The whole cluster stands still although work is due.",
    threshold=(
        f"nothing but heartbeats for {MIN_STANDSTILL_S:.0f} s or more, although workers had tasks and"
        " executed none, or a graph was sent of which no task was"
    ),
    advice=(
        "Look for paused workers, tasks with resources, workers or hosts that nobody has, a graph that takes"
        " long to prepare, data that no worker can fetch, and a deadlock: client.cluster.scheduler.story(KEY)"
        " or client.dump_cluster_state()."
    ),
    stops_all=True,
    detect=detect,
)
