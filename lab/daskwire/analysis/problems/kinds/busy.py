"""Processes that are busy, blocked or waiting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence, Lateness
from daskwire.analysis.problems.evidence.retransmissions import (
    SECOND_NS,
    Interval,
    hull,
    intervals,
    merged,
    overlap,
    seconds,
    seconds_by_flow,
)
from daskwire.analysis.problems.evidence.traffic import GRAPHS, Node, Pair
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, counted, is_cheap
from daskwire.base.arrays import NONE, Flags, Ints
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.net.segments import ACK, FIN, RST, SYN

# Schedulers whose event loop is busy.

MAX_ANSWER_MS = 300.0  # a later answer to a heartbeat waited for the event loop


def find_slow_scheduler_loop(evidence: Evidence) -> Iterator[Finding]:
    """Yield schedulers that answer heartbeats late, unless the network delayed them."""
    messages = evidence.capture.messages
    groups: defaultdict[str, list[tuple[Interval, int]]] = defaultdict(list)
    for message in messages.op_message[messages.ops_named({"heartbeat_worker"})].tolist():
        flow, answer = int(messages.flow[message]), int(messages.answer[message])
        cluster, worker, _ = evidence.pairs[flow]
        if answer == NONE or not (wait := _wait(evidence, flow, message, answer)):
            continue
        if evidence.during_work(cluster, wait) and overlap(wait, evidence.stalls[worker]) < 0.5:
            groups[cluster].append((wait, flow))
    for cluster, late in sorted(groups.items()):
        waits, flows = [wait for wait, _ in late], tuple(sorted({flow for _, flow in late}))
        longest_ms = max(end - begin for begin, end in waits) / 1e6
        workers = len({evidence.pairs[flow][1] for flow in flows})
        what = (
            f"answered {counted(len(late), 'heartbeat')} of {counted(workers, 'worker')} after more than"
            f" {MAX_ANSWER_MS:.0f} ms (up to {longest_ms:,.0f} ms)"
        )
        pair = cluster, evidence.capture.scheduler_names.get(cluster, ""), ""
        cost_s = seconds(waits)
        yield Finding(
            SLOW_SCHEDULER_LOOP, what, pair, hull(waits), cost_s, 0.9, len(late), flows, is_cheap(cost_s)
        )


def _wait(evidence: Evidence, flow: int, message: int, answer: int) -> Interval | None:
    """Return how long a heartbeat waited for the scheduler's loop, if that was long.

    Its kernel acknowledges the heartbeat at once. Whatever delays this ACK as well is the network.
    """
    segments, messages = evidence.capture.segments, evidence.capture.messages
    end_ns, answer_ns = int(messages.end_ns[message]), int(messages.time_ns[answer])
    if answer_ns - end_ns <= MAX_ANSWER_MS * 1e6:
        return None
    data = evidence.data_rows([flow])
    last = data[np.searchsorted(segments.time_ns[data], end_ns, side="right") - 1]
    acks = evidence.rows(flow ^ 1)
    acks = acks[(segments.time_ns[acks] >= end_ns) & (segments.flags[acks] & (ACK | RST) == ACK)]
    beyond = (segments.ack[acks] - (segments.seq[last] + segments.length[last])).astype(np.int32)
    answers = acks[beyond >= 0]
    start_ns = int(segments.time_ns[answers[0]]) if len(answers) else end_ns
    return (start_ns, answer_ns) if answer_ns - start_ns > MAX_ANSWER_MS * 1e6 else None


SLOW_SCHEDULER_LOOP = Kind(
    name="slow scheduler loop",
    meaning="The scheduler's event loop is busy, so all its peers wait for answers.",
    threshold=(
        "heartbeats waited for an answer for more than 0.3 s after the scheduler's host had acknowledged"
        f" them, and {COSTLY_S} s in all"
    ),
    advice="Profile the scheduler; look for large graphs, plugins and extensions.",
    effects=frozenset({"zero window"}) | DELAYS,
    detect=find_slow_scheduler_loop,
)


# Workers that sent nothing although a heartbeat was due.


def find_blocked_worker_loop(evidence: Evidence) -> Iterator[Finding]:
    """Yield the pauses of each worker, separately those that all workers share.

    If all workers pause together, they import a library, or the machine that they share is overloaded.
    """
    for node, lateness in evidence.lateness.items():
        alone = [pause for pause in lateness.silent if pause not in lateness.shared]
        if lateness.shared:
            together = ", together with all other workers"
            yield _blocked_loop_finding(evidence, node, lateness.shared, together, is_note=True)
        if alone:
            yield _blocked_loop_finding(evidence, node, alone)


def _blocked_loop_finding(
    evidence: Evidence, node: Node, pauses: list[Interval], together: str = "", is_note: bool = False
) -> Finding:
    cost_s, longest_s = seconds(pauses), max(stop - start for start, stop in pauses) / 1e9
    times = f" ({len(pauses)} times, {cost_s:.1f} s in all)" if len(pauses) > 1 else ""
    what = f"sent no message for {longest_s:.1f} s{times}, though heartbeats were due{together}"
    flows = tuple(flow for flow in evidence.flows if evidence.pairs[flow][:2] == node)
    return Finding(
        BLOCKED_WORKER_LOOP, what, (*node, ""), hull(pauses), cost_s, 0.9, len(pauses), flows, is_note
    )


BLOCKED_WORKER_LOOP = Kind(
    name="blocked worker loop",
    meaning="A worker's event loop was blocked: it sent nothing although a heartbeat was due.",
    threshold=(
        "no message of the worker for 1 s or more, and for half of an interval between its heartbeats that is"
        " at least twice the requested one"
    ),
    advice="Look for code that holds the GIL or blocks the loop, and for a stopped or swapped-out process.",
    effects=frozenset({"zero window"}) | DELAYS,
    detect=find_blocked_worker_loop,
)


# Workers whose heartbeats come late although they send other messages.

LATE_NUMBER, LATE_SHARE = 3, 0.25


def find_late_heartbeats(evidence: Evidence) -> Iterator[Finding]:
    for node, lateness in evidence.lateness.items():
        if lateness.late:
            yield _heartbeat_finding(node, lateness)


def _heartbeat_finding(node: Node, lateness: Lateness) -> Finding:
    waits = lateness.late
    longest_ms = max(end - begin for begin, end in waits) / 1e6
    what = (
        f"{len(waits)} of {lateness.number} heartbeats came after up to {longest_ms:,.0f} ms, although the"
        f" scheduler requested {lateness.requested_ms:.0f} ms and the worker sent other messages"
    )
    cost_s = sum((end - begin) / 1e9 - lateness.requested_ms / 1e3 for begin, end in waits)
    is_note = len(waits) < LATE_NUMBER and len(waits) < LATE_SHARE * lateness.number
    return Finding(LATE_HEARTBEATS, what, (*node, ""), hull(waits), cost_s, 0.9, len(waits), is_note=is_note)


LATE_HEARTBEATS = Kind(
    name="late heartbeats",
    meaning="A worker's heartbeats come late although it sends other messages.",
    threshold=(
        "intervals of more than twice what the scheduler requested and 1 s longer, 3 of them or 25 % of all"
    ),
    advice="Compare the worker's CPU with its threads; the scheduler removes workers after worker-ttl.",
    detect=find_late_heartbeats,
)


# Processes that do not read what they receive.

PAUSE_S = 1.0  # a worker that splits data frames for a shuffle does not read for nearly as long
MAX_WORK_SHARE = 0.5  # the longer a shuffle takes, the longer its short pauses are in all


def find_zero_window(evidence: Evidence) -> Iterator[Finding]:
    """Yield receivers that stopped their peers."""
    segments = evidence.capture.segments
    closed = (segments.window == 0) & (segments.flags & (RST | SYN | FIN) == 0) & ~evidence.capture.copied
    groups: defaultdict[Node, list[tuple[int, Interval]]] = defaultdict(list)
    for flow in np.unique(segments.flow[closed]).tolist():
        cluster, node, _ = evidence.pairs[flow]
        groups[cluster, node] += [
            (flow, w) for w in _closed(evidence, flow) if evidence.during_work(cluster, w)
        ]
    for (cluster, node), episodes in sorted(groups.items()):
        if not episodes:
            continue
        flows, waits = zip(*episodes, strict=True)
        peers = sorted({evidence.pairs[flow][2] for flow in flows})
        cost_s = seconds_by_flow(flows, waits)
        longest_s = max(map(_duration_s, merged(waits)))
        what = (
            f"its process did not read: {counted(len(waits), 'time')} a window of 0, {cost_s:.2f} s in all"
            f" (longest {longest_s:.2f} s); waiting: {', '.join(peers)}"
        )
        pair = cluster, node, peers[0] if len(peers) == 1 else ""
        work_s = _duration_s(evidence.work.get(cluster, evidence.span(flows)))
        is_note = longest_s < PAUSE_S and seconds(waits) < max(PAUSE_S, MAX_WORK_SHARE * work_s)
        when, own = hull(waits), tuple(sorted(set(flows)))
        yield Finding(ZERO_WINDOW, what, pair, when, cost_s, 0.95, len(waits), own, is_note)


def _duration_s(interval: Interval) -> float:
    return (interval[1] - interval[0]) / SECOND_NS


def _closed(evidence: Evidence, flow: int) -> list[Interval]:
    """Return when the sender of a flow had a window of 0 while its peer had more to send."""
    segments, rows = evidence.capture.segments, evidence.rows(flow)
    rows = rows[segments.flags[rows] & (RST | SYN | FIN) == 0]
    zero = segments.window[rows] == 0
    sent_ns = segments.time_ns[evidence.data_rows([flow ^ 1])]
    last_ns = max(evidence.last_ns(f) for f in (flow, flow ^ 1) if f in evidence.flows)
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


ZERO_WINDOW = Kind(
    name="zero window",
    meaning="A process does not read what it receives, so its peers must wait.",
    threshold=(
        f"a receive window of 0 stopped peers that had more to send, for {PAUSE_S:.0f} s at a time, or for"
        f" {PAUSE_S:.0f} s and {100 * MAX_WORK_SHARE:.0f} % of the cluster's work in all"
    ),
    advice="Look at the receiving process: its event loop is blocked, or it is stopped or short of CPU.",
    filter="tcp.window_size_value == 0 || tcp.analysis.window_update",
    effects=DELAYS,
    detect=find_zero_window,
)


# Clusters that exchange nothing but heartbeats although work is due.

MIN_STANDSTILL_S = 5.0
IDLE_OPS = frozenset({  # sent at intervals by a cluster that does nothing, or that looks for lost data
    "heartbeat_worker", "heartbeat-client", "keep-alive", "identity", "who_has", "request-refresh-who-has",
    "missing-data", "adjust-heartbeat-interval",
})  # fmt: skip
PROGRESS = frozenset({"compute-task", "task-finished", "task-erred", "key-in-memory"})


def find_standstill(evidence: Evidence) -> Iterator[Finding]:
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
            yield _standstill_finding(cluster, own, is_note)


def _is_up(pause: Interval, answers_ns: Ints) -> bool:
    """Return whether requests were answered until the end of a pause, so that no event loop was blocked."""
    middle_ns = (pause[0] + pause[1]) // 2
    return bool(((answers_ns > middle_ns) & (answers_ns <= pause[1])).any())


def _standstill_finding(cluster: str, pauses: list[tuple[Interval, str]], is_note: bool) -> Finding:
    waits = [pause for pause, _ in pauses]
    (start_ns, stop_ns), what = max(pauses, key=lambda own: own[0][1] - own[0][0])
    cost_s = seconds(waits)
    times = f" ({len(waits)} times, {cost_s:.1f} s in all)" if len(waits) > 1 else ""
    what = f"only heartbeats for {(stop_ns - start_ns) / SECOND_NS:.1f} s{times}: {what}"
    return Finding(
        STANDSTILL, what, (cluster, "", ""), hull(waits), cost_s, 0.85, len(waits), is_note=is_note
    )


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


STANDSTILL = Kind(
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
    detect=find_standstill,
)


# Workers that put off requests for data.


def find_busy_workers(evidence: Evidence) -> Iterator[Finding]:
    table = evidence.transfers
    rows = zip(*(table[name] for name in ("cluster", "source", "destination", "status")), strict=True)
    busy = Counter(tuple(pair) for *pair, status in rows if status == "busy")
    for (cluster, source, destination), number in sorted(busy.items()):
        what = f"put off {counted(number, 'request')} for data: too many at once"
        yield Finding(BUSY_WORKERS, what, (cluster, source, destination), number=number, is_note=True)


BUSY_WORKERS = Kind(
    name="busy workers",
    meaning="Workers put off requests for data because too many are open.",
    threshold="always a note",
    advice="Raise distributed.worker.connections.incoming, or move less data.",
    detect=find_busy_workers,
)


# Tasks that ended with an exception.


def find_erred_tasks(evidence: Evidence) -> Iterator[Finding]:
    tasks = evidence.capture.table("tasks")
    groups: defaultdict[Pair, list[int]] = defaultdict(list)
    columns = ("cluster", "worker", "outcome", "finished_ns")
    for cluster, worker, outcome, time_ns in zip(*(tasks[name] for name in columns), strict=True):
        if outcome == "erred":
            scheduler = evidence.capture.scheduler_names.get(cluster, "")
            groups[cluster, worker, scheduler].append(time_ns)
    for pair, times in sorted(groups.items()):
        what = f"{counted(len(times), 'task')} ended with an exception"
        yield Finding(ERRED_TASKS, what, pair, (min(times), max(times)), number=len(times))


ERRED_TASKS = Kind(
    name="erred tasks",
    meaning="Tasks ended with an exception.",
    threshold="any",
    advice="See the exception on the client.",
    detect=find_erred_tasks,
)
