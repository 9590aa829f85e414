"""Schedulers that vanished while they were needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, FAILURES, Finding, Kind, counted, is_cheap
from daskwire.analysis.tables.participants import CLIENT, Departure, Participant, departure, participants
from daskwire.decoder.dask.nodes.clusters import cluster_name
from daskwire.decoder.dask.nodes.identities import Endpoint
from daskwire.decoder.net.segments import ACK, SYN

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


def detect(evidence: Evidence) -> Iterator[Finding]:
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
    return Finding(
        KIND, "; ".join(filter(None, parts)), (cluster, name, ""), when, cost_s, 0.9, 1, flows, is_note
    )  # fmt: skip


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


KIND = Kind(
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
    detect=detect,
)
