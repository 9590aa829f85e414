"""Processes and connections that ended while they were needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.connects import Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.retransmissions import SECOND_NS
from daskwire.analysis.problems.evidence.traffic import COMPUTATION_COMPLETE, GRAPHS, Pair
from daskwire.analysis.problems.finding import (
    COSTLY_S,
    DELAYS,
    FAILURES,
    Finding,
    Kind,
    connect_findings,
    counted,
    is_cheap,
)
from daskwire.analysis.tables.participants import (
    CLIENT,
    Departure,
    Participant,
    broken_streams,
    departure,
    participants,
)
from daskwire.base.arrays import NONE
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.nodes import Endpoint, cluster_name
from daskwire.decoder.net.segments import ACK, FIN, RST, SYN

# Clients that left in the middle of their computation.


def find_lost_client(evidence: Evidence) -> Iterator[Finding]:
    """Yield clients whose host closed their connection while they waited for results, or held some.

    A client that closes says so before; that of a process that was killed is closed by its kernel.
    """
    capture = evidence.capture
    for client in participants(capture):
        end = departure(capture, client.flow) if client.role == CLIENT else None
        if end is None or end.flow != client.flow or end.is_announced:
            continue
        pair = evidence.pairs[client.flow]
        if evidence.running.get(pair[0], (0, 0))[1] < end.time_ns + SECOND_NS:
            continue  # the cluster was stopped as well
        sent_ns, need = _need(evidence, pair[0], client.flow, end.time_ns)
        if need:
            start_ns = min(sent_ns, default=end.time_ns)
            what = (
                "its host closed the connection with the scheduler, and the client had not announced it;"
                f" {need}"
            )
            number, cost_s = max(len(sent_ns), 1), (end.time_ns - start_ns) / 1e9
            when = start_ns, end.time_ns
            yield Finding(LOST_CLIENT, what, pair, when, cost_s, 0.8, number, (client.flow,), not sent_ns)


def _need(evidence: Evidence, cluster: str, flow: int, time_ns: int) -> tuple[list[int], str]:
    """Return since when a client had waited for what, if it needed anything."""
    sent_ns = evidence.capture.table("tasks")["sent_ns"]
    if tasks := [sent_ns[row] for row in evidence.due_tasks(cluster, time_ns, time_ns + 1).tolist()]:
        return tasks, f"{counted(len(tasks), 'task')} had no result yet"
    told_ns = _latest(_times(evidence, {COMPUTATION_COMPLETE}, flow ^ 1, time_ns))
    if graphs := [time for time in _times(evidence, GRAPHS, flow, time_ns) if time > told_ns]:
        return graphs, f"{counted(len(graphs), 'graph')} had no result yet"
    if told_ns > _latest(_times(evidence, {"client-releases-keys"}, flow, time_ns)):
        return [], "it had released none of its latest results"
    return [], ""


def _times(evidence: Evidence, ops: Collection[str], flow: int, until_ns: int) -> list[int]:
    """Return when a flow carried some ops."""
    messages = evidence.capture.messages
    own = messages.op_message[messages.ops_named(ops)]
    times = messages.time_ns[own[messages.flow[own] == flow]]
    return sorted(times[times <= until_ns].tolist())


def _latest(times: list[int]) -> int:
    return max(times, default=0)


LOST_CLIENT = Kind(
    name="lost client",
    meaning="A client's process ended in the middle of its computation, which the scheduler then cancels.",
    threshold=(
        "its host closed its connection with the scheduler, no message had announced it, tasks or a graph had"
        " no result, and the cluster ran for 1 s or more after it; a note if it only held results"
    ),
    advice="Look for the end of the client's process: its log, a closed notebook, dmesg, a lost VPN.",
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1",
    is_sudden=True,
    detect=find_lost_client,
)


# Schedulers that vanished while they were needed.

AT_ONCE_NS = 2 * SECOND_NS  # a process that ends closes all its connections within this time
MIN_RESTART_NS = SECOND_NS // 2  # before, the host may still accept for the process that ends
MIN_UNANSWERED = 3  # segments with data or SYN, to a scheduler that sends nothing any more
MIN_SILENCE_NS = SECOND_NS  # until the last of them; at the end of a capture, answers are under way


@dataclass(frozen=True)
class Loss:
    """When a scheduler vanished, and how.

    Attributes:
        time_ns: when it closed its connections, or sent its last segment.
        how: in words.
        is_announced: its peers knew.
        peers: those that were connected with it.
    """

    time_ns: int
    how: str
    is_announced: bool
    peers: list[Participant]


def find_lost_scheduler(evidence: Evidence) -> Iterator[Finding]:
    capture = evidence.capture
    everyone = participants(capture)
    for head in dict.fromkeys(capture.nodes.schedulers.values()):
        cluster = cluster_name(head)
        own = [member for member in everyone if evidence.pairs[member.flow][0] == cluster]
        ends = {end for end, main in capture.nodes.schedulers.items() if main == head}
        loss = _closing(evidence, own) or _silence(evidence, own, ends)
        if loss and (finding := _finding(evidence, cluster, ends, loss)):
            yield finding


def _closing(evidence: Evidence, own: list[Participant]) -> Loss | None:
    """Return when a scheduler closed all connections with its workers and clients at once."""
    endings = {member.flow: departure(evidence.capture, member.flow) for member in own}
    closed = [end.time_ns for flow, end in endings.items() if end and end.flow == flow ^ 1]
    for time_ns in sorted(closed):
        present = [member for member in own if _is_present(evidence, member, endings[member.flow], time_ns)]
        ends = [endings[member.flow] for member in present]
        if ends and all(end and end.time_ns <= time_ns + AT_ONCE_NS for end in ends):
            is_announced = any(end and end.is_announced for end in ends)
            return Loss(time_ns, "closed its connections with", is_announced, present)
    return None


def _is_present(evidence: Evidence, member: Participant, end: Departure | None, time_ns: int) -> bool:
    """Return whether a participant was connected at a time, and not about to leave of its own accord."""
    if evidence.first_ns(member.flow) > time_ns or (end and end.time_ns < time_ns):
        return False
    return not (member.role == CLIENT and end and end.is_announced and end.time_ns <= time_ns + AT_ONCE_NS)


def _silence(evidence: Evidence, own: list[Participant], ends: set[Endpoint]) -> Loss | None:
    """Return when a scheduler sent its last segment, if its peers went on sending."""
    capture, segments = evidence.capture, evidence.capture.segments
    last_ns = [evidence.last_ns(flow) for flow in evidence.flows if capture.senders[flow] in ends]
    if not last_ns:
        return None
    time_ns = max(last_ns)
    open_ = [member for member in own if not departure(capture, member.flow)]
    unanswered_ns = [
        int(segments.time_ns[row])
        for flow in evidence.flows
        if capture.senders[flow ^ 1] in ends and evidence.last_ns(flow) > time_ns
        for row in evidence.rows(flow).tolist()
        if segments.time_ns[row] > time_ns and (segments.length[row] or segments.flags[row] & SYN)
    ]
    is_long = max(unanswered_ns, default=time_ns) - time_ns >= MIN_SILENCE_NS
    if len(unanswered_ns) < MIN_UNANSWERED or not is_long or not open_:
        return None
    return Loss(time_ns, "sent nothing more to", False, open_)


def _finding(evidence: Evidence, cluster: str, ends: set[Endpoint], loss: Loss) -> Finding | None:
    """Describe a loss if somebody needed the scheduler: a client was connected, or tasks were open.

    A short one is a note if it was announced, if no client was there, or if there were neither tasks nor
    attempts to reach it again.
    """
    capture, name = evidence.capture, evidence.capture.scheduler_names[cluster]
    peers = sorted({evidence.pairs[member.flow][1] for member in loss.peers})
    tasks = _open_tasks(evidence, cluster, peers, loss.time_ns)
    has_client = any(member.role == CLIENT for member in loss.peers)
    if not tasks and not has_client:
        return None
    later = [
        flow
        for flow in evidence.flows
        if capture.senders[flow ^ 1] in ends and evidence.last_ns(flow) > loss.time_ns
    ]
    back_ns = _first_answer_ns(evidence, ends, loss.time_ns)
    stop_ns = back_ns or max(map(evidence.last_ns, later), default=loss.time_ns)
    cost_s = (stop_ns - loss.time_ns) / 1e9
    tries = [flow for flow in later if evidence.first_ns(flow) > loss.time_ns]
    parts = [
        f"{loss.how} {', '.join(peers)}{', as announced' if loss.is_announced else ''}",
        f"{counted(tasks, 'task')} had no result" if tasks else "",
        f"{counted(len(tries), 'later connect')} failed" if tries and not back_ns else "",
        f"it accepted connections again after {cost_s:.1f} s" if back_ns else "",
    ]
    flows = (*(member.flow for member in loss.peers), *tries)
    is_unneeded = not has_client or not (tasks or tries)
    is_note = (loss.is_announced and not tasks) or (is_cheap(cost_s) and (loss.is_announced or is_unneeded))
    when = loss.time_ns, stop_ns
    what = "; ".join(filter(None, parts))
    return Finding(LOST_SCHEDULER, what, (cluster, name, ""), when, cost_s, 0.9, 1, flows, is_note)


def _open_tasks(evidence: Evidence, cluster: str, workers: list[str], time_ns: int) -> int:
    """Count the tasks that were sent to some workers and not reported when a scheduler vanished.

    Those of a worker that had left before are computed elsewhere.
    """
    times = [sent_ns for worker in workers for sent_ns in evidence.unreported.get((cluster, worker), ())]
    return sum(sent_ns <= time_ns for sent_ns in times)


def _first_answer_ns(evidence: Evidence, ends: set[Endpoint], time_ns: int) -> int | None:
    """Return when a scheduler that had vanished first accepted a connection again."""
    segments = evidence.capture.segments
    is_later = segments.time_ns > time_ns + MIN_RESTART_NS
    rows = np.flatnonzero((segments.flags & (SYN | ACK) == SYN | ACK) & is_later & ~evidence.capture.copied)
    own = (int(segments.time_ns[row]) for row in rows if evidence.capture.senders[segments.flow[row]] in ends)
    return next(own, None)


LOST_SCHEDULER = Kind(
    name="lost scheduler",
    meaning="The scheduler vanished while it was needed: its process, its host or its link.",
    threshold=(
        "it closed all its connections at once or sent nothing more, while a client was connected or tasks"
        f" had no result; it had not announced that, or its peers did not reach it for {COSTLY_S} s"
    ),
    advice=(
        "Look in the scheduler's log and in its host's dmesg (Out of memory: Killed process); its futures are"
        " lost, so start the computation again."
    ),
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1 || tcp.flags.syn == 1",
    effects=FAILURES | DELAYS | {"half-open connection", "retransmission time-outs", "lost worker"},
    is_sudden=True,
    stops_all=True,
    detect=find_lost_scheduler,
)


# Workers whose process ended in the middle of the work.


def find_lost_worker(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers whose host, before the scheduler's, closed their connection in the middle of the work.

    A worker that closes says so before; that of a process that was killed is closed by its kernel.
    """
    for worker, end in broken_streams(evidence.capture):
        pair = evidence.pairs[worker.flow]
        if end.flow != worker.flow:
            continue
        begin_ns, stop_ns = evidence.work.get(pair[0], (0, 0))
        if begin_ns < end.time_ns < stop_ns - SECOND_NS and not evidence.is_shut_down(pair[0], end.time_ns):
            what = "its host closed the connection with the scheduler, and the worker had not announced it"
            cost_s = evidence.unreported_s(pair, end.time_ns)
            yield Finding(
                LOST_WORKER, what, pair, (end.time_ns, end.time_ns), cost_s, 0.8, flows=(worker.flow,)
            )


LOST_WORKER = Kind(
    name="lost worker",
    meaning="A worker's process ended in the middle of the work.",
    threshold=(
        "its host closed its connection with the scheduler more than 1 s before the end of the work, while a"
        " client was connected, and no message had announced it"
    ),
    advice="Look in the log of the worker and its nanny, and in dmesg for: Out of memory: Killed process.",
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1",
    effects=frozenset({"mid-stream reset", "refused connects", "standstill"}),
    detect=find_lost_worker,
)


# Connections that were reset while they were in use.

RECONNECT_NS = 30 * SECOND_NS
OPS_WITH_REPLY = frozenset({"get_data", "gather", "heartbeat_worker", "identity", "who_has"})


def find_mid_stream_reset(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs whose connections were reset: problems if they were needed, else notes."""
    capture = evidence.capture
    segments = capture.segments
    rows = np.flatnonzero((segments.flags & (RST | FIN) != 0) & ~capture.copied)
    _, first = np.unique(segments.flow[rows] >> 1, return_index=True)
    first = first[segments.flags[rows[first]] & FIN == 0]  # after a FIN, an RST only ends the closing
    openings, streams = _openings(evidence), {worker.flow >> 1 for worker, _ in broken_streams(capture)}
    groups: defaultdict[tuple[bool, Pair], list[tuple[int, int, float]]] = defaultdict(list)
    for row in rows[first].tolist():
        flow, time_ns = int(segments.flow[row]), int(segments.time_ns[row])
        if flow // 2 not in capture.conversations:
            continue
        pair = evidence.pairs[flow]
        waited_s = max(
            _outstanding_s(evidence, flow // 2, time_ns),
            evidence.unreported_s(pair, time_ns),
            _unacknowledged_s(evidence, flow // 2, time_ns),
        )
        again = [t for t in openings[frozenset(pair[1:])] if time_ns < t < time_ns + RECONNECT_NS]
        until_s = (min(again) - time_ns) / 1e9 if again else 0.0
        is_work = evidence.during_work(pair[0], (time_ns, time_ns))
        is_work = is_work and not evidence.is_shut_down(pair[0], time_ns)
        was_needed = is_work and bool(waited_s or again or flow >> 1 in streams)
        groups[was_needed, pair].append((time_ns, flow, waited_s + until_s))
    for (was_needed, pair), resets in sorted(groups.items()):
        reason = ", while it was needed" if was_needed else ""
        what = f"reset {counted(len(resets), 'connection')} that carried Dask{reason}"
        times, flows = [time_ns for time_ns, _, _ in resets], tuple(flow for _, flow, _ in resets)
        cost_s = sum(cost for _, _, cost in resets)
        when = min(times), max(times)
        yield Finding(MID_STREAM_RESET, what, pair, when, cost_s, 0.9, len(resets), flows, not was_needed)
    aborted = evidence.connects_that(Failure.ABORTED)
    own = [group for group in aborted if evidence.is_dask_port(group.target.address, group.target.port)]
    yield from connect_findings(MID_STREAM_RESET, own, evidence)


def _unacknowledged_s(evidence: Evidence, connection: int, time_ns: int) -> float:
    """Return how long data of a reset connection had been sent again: its receiver took none."""
    events = evidence.retransmissions
    own = (events.flow >> 1 == connection) & (events.previous_ns <= time_ns) & (events.time_ns >= time_ns)
    return float((events.time_ns[own].max(initial=time_ns) - time_ns) / 1e9)


def _openings(evidence: Evidence) -> defaultdict[frozenset[str], list[int]]:
    """Return when connections between two nodes were opened."""
    result: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    for flow in evidence.flows:
        if flow % 2 == 0 and evidence.capture.lives.opened[flow // 2]:
            result[frozenset(evidence.pairs[flow][1:])].append(evidence.first_ns(flow))
    return result


def _outstanding_s(evidence: Evidence, connection: int, time_ns: int) -> float:
    """Return how long the oldest incomplete message or unanswered request had waited at a reset."""
    messages = evidence.capture.messages
    own = np.flatnonzero(messages.flow >> 1 == connection)
    waiting = own[messages.seen[own] < messages.size[own]].tolist()
    requests = own[(messages.kind[own] == MessageKind.REQUEST) & (messages.answer[own] == NONE)]
    for message in requests.tolist():
        index = int(np.searchsorted(messages.op_message, message))
        if messages.op_name[index] in OPS_WITH_REPLY:
            waiting.append(message)
    begin = min((int(messages.time_ns[message]) for message in waiting), default=time_ns)
    return (time_ns - begin) / 1e9


MID_STREAM_RESET = Kind(
    name="mid-stream reset",
    meaning="A connection was reset while it was in use.",
    threshold=(
        "an RST without a FIN before it, during the work of the cluster, with a message, a reply or a task's"
        " report outstanding, followed by a new connection between the same hosts, or of the connection over"
        " which a worker gets its tasks; or in place of the ACK of a SYN-ACK"
    ),
    advice="Look in the log of the process that sent the RST, and for firewalls that reject connections.",
    filter="tcp.flags.reset == 1",
    effects=frozenset({"refused connects", "retransmission time-outs", "half-open connection"}) | DELAYS,
    is_sudden=True,
    is_on_path=True,
    detect=find_mid_stream_reset,
)
