"""Clusters that exchange nothing but heartbeats although work is due."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS, Interval, hull, intervals, seconds
from daskwire.analysis.problems.evidence.traffic import GRAPHS
from daskwire.analysis.problems.finding import Finding, Kind, counted
from daskwire.base.arrays import NONE, Flags, Ints
from daskwire.decoder.dask.framing.content import MessageKind

MIN_STANDSTILL_S = 5.0
IDLE_OPS = frozenset({  # sent at intervals by a cluster that does nothing, or that looks for lost data
    "heartbeat_worker", "heartbeat-client", "keep-alive", "identity", "who_has", "request-refresh-who-has",
    "missing-data", "adjust-heartbeat-interval",
})  # fmt: skip
PROGRESS = frozenset({"compute-task", "task-finished", "task-erred", "key-in-memory"})


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per cluster with all its standstills, and one with those of its start-up."""
    if evidence.is_cut:
        return  # the messages that show progress may be cut
    messages, idle = evidence.capture.messages, _idle_messages(evidence)
    working = np.flatnonzero(~idle)
    answered = np.flatnonzero(idle & (messages.answer != NONE))
    ops = messages.ops_named(GRAPHS | PROGRESS)
    answers_of = evidence.by_cluster(messages.flow[answered])
    ops_of = evidence.by_cluster(messages.flow[messages.op_message[ops]])
    for cluster, rows in evidence.by_cluster(messages.flow[working]).items():
        own_ops = ops[ops_of.get(cluster, rows[:0])]
        end_ns = messages.end_ns[messages.op_message[own_ops]]
        answers_ns = messages.time_ns[answered[answers_of.get(cluster, rows[:0])]]
        pauses: defaultdict[bool, list[tuple[Interval, str]]] = defaultdict(list)
        for pause in _pauses(evidence, cluster, working[rows]):
            if not _is_up(pause, answers_ns) or evidence.is_shut_down(cluster, pause[0]):
                continue
            what = _open_tasks(evidence, cluster, pause)
            if what := what or _waiting_graph(evidence, own_ops[end_ns <= pause[0]]):
                pauses[not evidence.during_work(cluster, pause)].append((pause, what))
        for is_note, own in pauses.items():
            yield _finding(cluster, own, is_note)


def _is_up(pause: Interval, answers_ns: Ints) -> bool:
    """Return whether requests were answered until the end of a pause, so that no event loop was blocked."""
    middle_ns = (pause[0] + pause[1]) // 2
    return bool(((answers_ns > middle_ns) & (answers_ns <= pause[1])).any())


def _finding(cluster: str, pauses: list[tuple[Interval, str]], is_note: bool) -> Finding:
    waits = [pause for pause, _ in pauses]
    (start_ns, stop_ns), what = max(pauses, key=lambda own: own[0][1] - own[0][0])
    cost_s = seconds(waits)
    times = f" ({len(waits)} times, {cost_s:.1f} s in all)" if len(waits) > 1 else ""
    what = f"only heartbeats for {(stop_ns - start_ns) / SECOND_NS:.1f} s{times}: {what}"
    return Finding(KIND, what, (cluster, "", ""), hull(waits), cost_s, 0.85, len(waits), is_note=is_note)


def _idle_messages(evidence: Evidence) -> Flags:
    """Select handshakes, and messages that contain nothing but IDLE_OPS, with their answers."""
    messages = evidence.capture.messages
    number = np.bincount(messages.op_message, minlength=len(messages))
    idle_ops = messages.op_message[messages.ops_named(IDLE_OPS)]
    idle = (number > 0) & (np.bincount(idle_ops, minlength=len(messages)) == number)
    answers = messages.answer[idle]
    idle[answers[answers != NONE]] = True
    return np.asarray(idle | (messages.kind == MessageKind.HANDSHAKE))


def _pauses(evidence: Evidence, cluster: str, working: Ints) -> list[Interval]:
    """Return when a cluster that ran sent no message that does work, for MIN_STANDSTILL_S or more."""
    messages = evidence.capture.messages
    if cluster not in evidence.running:
        return []
    stop_ns = messages.end_ns[working].copy()
    is_partial = messages.seen[working] < messages.size[working]
    for index in np.flatnonzero(is_partial).tolist():  # they may still be on their way
        stop_ns[index] = evidence.last_ns(int(messages.flow[working[index]]))
    start_ns = np.append(messages.time_ns[working], evidence.running[cluster][1])
    before_ns = np.maximum.accumulate(stop_ns)
    long = np.flatnonzero(start_ns[1:] - before_ns >= MIN_STANDSTILL_S * SECOND_NS)
    return intervals(before_ns[long], start_ns[1:][long])


def _open_tasks(evidence: Evidence, cluster: str, pause: Interval) -> str:
    """Say which workers had tasks during a pause, if all of them report that they execute none."""
    workers = evidence.capture.table("tasks")["worker"]
    due = Counter(workers[row] for row in evidence.due_tasks(cluster, *pause).tolist())
    if not due:
        return ""
    executing = _executing(evidence, cluster, pause)
    if any(executing.get(worker) != {0} for worker in due):
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


def _waiting_graph(evidence: Evidence, ops: Ints) -> str:
    """Describe the graph that is the last of GRAPHS and PROGRESS, if it is."""
    messages = evidence.capture.messages
    if not len(ops) or messages.op_name[int(ops[-1])] not in GRAPHS:
        return ""
    client = evidence.pairs[int(messages.flow[messages.op_message[ops[-1]]])][1]
    return f"{client} had sent a graph, and the scheduler sent none of its tasks to a worker"


KIND = Kind(
    name="standstill",
    meaning="The whole cluster stands still although work is due.",
    threshold=(
        f"nothing but heartbeats for {MIN_STANDSTILL_S:.0f} s or more, although workers had tasks and"
        " executed none, or a graph was sent of which no task was; the scheduler answered meanwhile"
    ),
    advice=(
        "Look for paused workers, tasks with resources, workers or hosts that nobody has, a graph that takes"
        " long to prepare, data that no worker can fetch, and a deadlock: client.cluster.scheduler.story(KEY)"
        " or client.dump_cluster_state()."
    ),
    stops_all=True,
    detect=detect,
)
