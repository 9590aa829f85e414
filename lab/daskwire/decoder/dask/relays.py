"""Find connections that a TCP relay passes on: ssh -L, socat, a port-forward, a sidecar.

A relay accepts a connection and opens another one for the same bytes, with new sequence numbers. So a message
passes twice: first from its sender to an address of the relay, then from that address to its receiver, and
the messages in the opposite direction go the same way back. A message that is sent to several nodes has the
same sender each time, and does not go back. Relays within one host are not recognised on its loopback.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from ipaddress import ip_address
from itertools import permutations
from typing import NamedTuple

from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.net.connections import Connections
from daskwire.decoder.net.tcp import arrival

RELAYED = "relayed Dask"  # protocol of the second of two connections
SAMPLED_MESSAGES_OF_A_FLOW = 32
MIN_BODY_BYTES = 16  # shorter messages, such as "OK", are alike
MAX_EQUAL = 8  # messages with the same body; more are alike by chance
MIN_SHARED, MIN_SHARE = 3, 0.6  # messages of two connections that must be the same
WITHIN_NS = 2_000_000_000  # a relay passes a message on within this time


Step = tuple[int, int]  # flow to a relay, and flow from there


class Passage(NamedTuple):
    """When a message passed on a flow, and the digest of its body."""

    digest: bytes
    time_ns: int
    flow: int


def relays(conversations: Mapping[int, Conversation], connections: Connections) -> list[tuple[int, int]]:
    """Return pairs of connections with the same content: from the opener to the relay, and from there on."""
    by_digest: defaultdict[bytes, list[Passage]] = defaultdict(list)
    number: Counter[int] = Counter()
    for conversation in conversations.values():
        for passage in _passages(conversation):
            by_digest[passage.digest].append(passage)
            number[passage.flow >> 1] += 1
    steps: defaultdict[Step, list[int]] = defaultdict(list)
    for passages in by_digest.values():
        if 1 < len(passages) <= MAX_EQUAL:
            for step, lag_ns in _steps(passages, connections):
                steps[step].append(lag_ns)
    result: dict[int, int] = {}
    for first, second in sorted(steps, key=lambda step: (-len(steps[step]), min(steps[step]))):
        back = len(steps.get((second ^ 1, first ^ 1), ()))
        shared, fewer = len(steps[first, second]) + back, min(number[first >> 1], number[second >> 1])
        is_same = bool(back) and shared >= max(MIN_SHARED, MIN_SHARE * fewer)
        if not is_same and not (shared > 1 and _have_equal_sizes(conversations, first, second)):
            continue
        # The relay listens on one connection and opens the other one: ephemeral ports are higher.
        outer, inner = (first, second) if _is_opener(connections, first) else (second, first)
        ends = {*result, *result.values()}
        if not {outer >> 1, inner >> 1} & ends:
            result[outer >> 1] = inner >> 1
    return list(result.items())


def _have_equal_sizes(conversations: Mapping[int, Conversation], first: int, second: int) -> bool:
    """Return whether the messages on two connections have the same sizes, in both directions."""
    for side in (0, 1):
        sizes = []
        for flow in (first ^ side, second ^ side):
            framed = conversations[flow >> 1].framed.get(flow & 1)
            sizes.append(framed.table()[:SAMPLED_MESSAGES_OF_A_FLOW, 1].tolist() if framed else [])
        if not sizes[0] or sizes[0] != sizes[1]:
            return False
    return True


def _passages(conversation: Conversation) -> Iterator[Passage]:
    """Yield the first messages of both flows of a connection that are long enough to be recognised."""
    for direction, framed in conversation.framed.items():
        stream, rows = conversation.streams[direction], framed.table()[:SAMPLED_MESSAGES_OF_A_FLOW]
        times_ns = arrival(stream, rows[:, 0]).tolist() if len(rows) else []
        for (position, _, _, at, size), time_ns, kind in zip(
            rows.tolist(), times_ns, framed.contents.kind, strict=False
        ):
            if kind == MessageKind.HANDSHAKE or size < MIN_BODY_BYTES:
                continue
            body = stream.read(position + at, size)
            if body is not None:
                digest = blake2b(body, digest_size=16).digest()
                yield Passage(digest, time_ns, 2 * conversation.connection + direction)


def _steps(passages: list[Passage], connections: Connections) -> Iterator[tuple[Step, int]]:
    """Yield the flows of a message that went to an address and was then sent from there, and its delay."""
    for first, second in permutations(passages, 2):
        if first.flow >> 1 != second.flow >> 1 and 0 <= second.time_ns - first.time_ns < WITHIN_NS:
            source, source_port, relay, port = connections.endpoints(first.flow)
            sender, sender_port, target, target_port = connections.endpoints(second.flow)
            ends = {(source, source_port), (relay, port)}
            if ends & {(sender, sender_port), (target, target_port)} or source == relay == sender == target:
                continue
            if relay == sender or (ip_address(relay).is_loopback and not ip_address(target).is_loopback):
                yield (first.flow, second.flow), second.time_ns - first.time_ns


def _is_opener(connections: Connections, flow: int) -> bool:
    """Return whether the sender of a flow seems to have opened the connection."""
    _, port, _, peer_port = connections.endpoints(flow)
    return port > peer_port
