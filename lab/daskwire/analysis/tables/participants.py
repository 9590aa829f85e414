"""The processes of each cluster: what each announced, whether it joined, and how it left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.base.arrays import NONE
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import text
from daskwire.decoder.dask.nodes import Endpoint, cluster_name
from daskwire.decoder.net.segments import FIN, RST

WORKER, NANNY, CLIENT, SCHEDULER = "worker", "nanny", "client", "scheduler"
REGISTRATIONS = {"register-worker": WORKER, "register_nanny": NANNY, "register-client": CLIENT}
HEARTBEATS = {"heartbeat_worker": WORKER, "heartbeat-client": CLIENT}
GOODBYES = frozenset({"close", "close-stream", "close-client", "stream-closed"})
JOINED, NO_ANSWER = "yes", "no answer"


@dataclass(frozen=True)
class Participant:
    """A process that registered with a scheduler, or had done so before the capture.

    Attributes:
        role: WORKER, NANNY or CLIENT.
        flow: from it to the scheduler; the flow of its registration, if that was captured.
        announced: the address at which its peers reach it, None for a client.
        registration: message with its registration, NONE if it registered before the capture.
    """

    role: str
    flow: int
    announced: Endpoint | None
    registration: int


@dataclass(frozen=True)
class Departure:
    """How a connection ended.

    Attributes:
        flow: flow of the side that ended it.
        time_ns: when that was.
        is_reset: by an RST, not by a FIN.
        is_announced: an earlier message on the connection had said so.
    """

    flow: int
    time_ns: int
    is_reset: bool
    is_announced: bool


def participants(capture: Capture) -> list[Participant]:
    """Return all participants in the order of their first message; one per registration."""
    messages = capture.messages
    first: dict[tuple[str, int | Endpoint], Participant] = {}
    registered: set[tuple[str, Endpoint | None]] = set()
    for row in messages.ops_named(REGISTRATIONS.keys() | HEARTBEATS.keys()).tolist():
        message, op = int(messages.op_message[row]), messages.op_name[row]
        flow = int(messages.flow[message])
        role = REGISTRATIONS.get(op) or HEARTBEATS[op]
        announced = None if role == CLIENT else capture.processes[flow]
        if op in REGISTRATIONS:
            registered.add((role, announced))
            first.setdefault((role, flow), Participant(role, flow, announced, message))
        elif (role, announced) not in registered or announced is None:
            first.setdefault((role, announced or flow), Participant(role, flow, announced, NONE))
    return list(first.values())


def departure(capture: Capture, flow: int) -> Departure | None:
    """Return how the connection of a flow ended, None if it was open at the end of the capture."""
    segments, messages = capture.segments, capture.messages
    rows = np.sort(np.concatenate([capture.lanes.rows(flow), capture.lanes.rows(flow ^ 1)]))
    ends = rows[segments.flags[rows] & (FIN | RST) != 0]
    if not len(ends):
        return None
    time_ns = int(segments.time_ns[ends[0]])
    goodbyes = messages.op_message[messages.ops_named(GOODBYES)]
    own = goodbyes[messages.flow[goodbyes] >> 1 == flow >> 1]
    return Departure(
        int(segments.flow[ends[0]]),
        time_ns,
        bool(segments.flags[ends[0]] & RST),
        bool((messages.time_ns[own] <= time_ns).any()),
    )


def broken_streams(capture: Capture) -> Iterator[tuple[Participant, Departure]]:
    """Yield workers whose connection for tasks ended, although nobody had said so, and how it ended.

    Of a worker that registered before the capture, only its connection for heartbeats is known.
    """
    for member in participants(capture):
        if member.role == WORKER and member.registration != NONE:
            end = departure(capture, member.flow)
            if end and not end.is_announced:
                yield member, end


def joined(capture: Capture, participant: Participant) -> str:
    """Return JOINED, NO_ANSWER, the scheduler's refusal, or nothing if it registered before the capture."""
    if participant.registration == NONE:
        return ""
    answer = int(capture.messages.answer[participant.registration])
    if participant.role != WORKER:  # their answer is the beginning of a stream, or "OK"
        has_answer = (capture.messages.flow == participant.flow ^ 1).any()
        return JOINED if has_answer else NO_ANSWER
    if answer == NONE:
        return NO_ANSWER
    reply = capture.content(answer)
    if isinstance(reply, dict) and reply.get("status", "OK") != "OK":
        return f"refused: {text(reply.get('message', reply['status']))}"
    return JOINED


def nodes(capture: Capture) -> Table:
    """Build one row per scheduler's address, and one per registration."""
    table = empty("nodes")
    for endpoint, head in capture.nodes.schedulers.items():
        name, announced = capture.nodes.name(*head), cluster_name(endpoint)
        add_row(table, name, SCHEDULER, announced, "", None, "", None, "", cluster_name(head))
    for participant in participants(capture):
        flow, registration = participant.flow, participant.registration
        end = departure(capture, flow)
        add_row(
            table,
            str(capture.sources[flow]),
            participant.role,
            cluster_name(participant.announced),
            capture.senders[flow][0],
            int(capture.messages.time_ns[registration]) if registration != NONE else None,
            joined(capture, participant),
            end.time_ns if end else None,
            _manner(end, flow) if end else "",
            str(capture.clusters[flow]),
        )
    return table


def _manner(end: Departure, flow: int) -> str:
    """Say in a word or two how a participant's connection ended."""
    verb = "said so" if end.is_announced else "reset" if end.is_reset else "closed"
    return verb if end.flow == flow else f"{verb} by the scheduler"
