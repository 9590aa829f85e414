"""An exchange of messages drawn as packets: who sent what, with relative sequence numbers, as the study
drew it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Any

import numpy as np

from daskwire.arrays import Ints
from daskwire.capture import Capture
from daskwire.dask.messagepack import text
from daskwire.net.tcp_options import DSACK

FEW = 32
DEEPEST = 16  # fields within fields that are shown each
WIDEST = 90  # characters of a value
FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"), (8, "PSH"), (16, "ACK"))


@dataclass(frozen=True)
class Packet:
    """One packet of an exchange: when since the first, whose, TCP's relative numbers, and its sizes."""

    time_ms: float
    source: str
    destination: str
    flags: str
    seq: int
    ack: int
    payload_bytes: int
    frame_bytes: int
    received_twice: bool  # it carries a D-SACK


def dialogue_rows(capture: Capture, request: int) -> list[int]:
    """Segments of one exchange, from the request's first to the one that acknowledges the reply."""
    found, segments = capture.messages, capture.segments
    flow, answer = int(found.flow[request]), int(found.answer[request])
    first = int(np.searchsorted(segments.time_ns, found.time_ns[request]))
    until = int(found.end_ns[answer if answer >= 0 else request])
    result = []
    for row in merge(*(_rows_from(capture.lanes.rows(f), first) for f in (flow, flow ^ 1))):
        time_ns, own = int(segments.time_ns[row]), segments.flow[row] == flow
        if answer < 0 and time_ns > until:
            break
        result.append(row)
        if time_ns > until and own:
            break
    return result


def _rows_from(lane: Ints, first: int) -> Iterator[int]:
    """The rows of a flow from a row of the capture on, a few at a time: mostly a few are wanted."""
    for begin in range(int(np.searchsorted(lane, first)), len(lane), FEW):
        yield from lane[begin : begin + FEW].tolist()


def packets(capture: Capture, request: int) -> list[Packet]:
    """The packets from a request to the ACK of its reply; ``request`` is a row of messages."""
    segments, flow = capture.segments, int(capture.messages.flow[request])
    zero = {flow: _zero(capture, flow), flow ^ 1: _zero(capture, flow ^ 1)}
    rows = dialogue_rows(capture, request)
    found = []
    for row in rows:
        sender, flags = int(segments.flow[row]), int(segments.flags[row])
        found.append(
            Packet(
                time_ms=int(segments.time_ns[row] - segments.time_ns[rows[0]]) / 1e6,
                source=str(capture.sources[sender]),
                destination=str(capture.sources[sender ^ 1]),
                flags=",".join(name for bit, name in FLAGS if flags & bit),
                seq=int(segments.seq[row]) - zero[sender] & 0xFFFFFFFF,
                ack=int(segments.ack[row]) - zero[sender ^ 1] & 0xFFFFFFFF,
                payload_bytes=int(segments.length[row]),
                frame_bytes=int(segments.frame_bytes[row]),
                received_twice=bool(flags & DSACK),
            )
        )
    return found


def exchange(capture: Capture, request: int) -> list[str]:
    """The packets of an exchange, one line each, and what they said."""
    lines = [
        f"{packet.time_ms:+10.3f} ms  {packet.source:>10} -> {packet.destination:<10}  "
        f"{packet.flags:<11} seq {packet.seq:<8} ack {packet.ack:<8} len {packet.payload_bytes:<6}"
        f"{'  D-SACK: received twice' if packet.received_twice else ''}"
        for packet in packets(capture, request)
    ]
    if not lines:
        return []
    answer = int(capture.messages.answer[request])
    lines += ["", *_said(capture, request, "request")]
    return lines + (_said(capture, answer, "reply") if answer >= 0 else ["no reply in the capture"])


def _zero(capture: Capture, flow: int) -> int:
    """Sequence number that is shown as 1 (the first data byte), as Wireshark does."""
    for index, known in enumerate(capture.pieces.flow.tolist()):
        if known == flow:
            return int(capture.pieces.zero[index]) - 1
    return 0


def said(capture: Capture, message: int) -> dict[str, Any] | None:
    """A message's decoded fields, dicts flattened with dots; None when its body is not in the capture."""
    found = capture.said(message)
    return None if found is None else flat(found)


def _said(capture: Capture, message: int, title: str) -> list[str]:
    size, found = int(capture.messages.size[message]), said(capture, message)
    if found is None:
        return [f"{title} ({size} bytes): its body is not in the capture"]
    return [
        f"{title} ({size} bytes):",
        *(f"    {path} = {shortened(value)}" for path, value in found.items()),
    ]


def shortened(value: Any) -> str:
    """A value on one line."""
    said = repr(value) if isinstance(value, str | bytes) else text(value)
    return said if len(said) <= WIDEST else said[: WIDEST - 3] + "..."


def flat(said: Any, path: str = "", depth: int = 0) -> dict[str, Any]:
    """Fields by path: ``{"a": {"b": 1}}`` gives ``{"a.b": 1}``."""
    if not isinstance(said, Mapping) or not said or depth == DEEPEST:
        return {path: said}
    found: dict[str, Any] = {}
    for key, value in said.items():
        found |= flat(value, f"{path}.{text(key)}" if path else text(key), depth + 1)
    return found
