"""Show a request and its reply packet by packet, with relative sequence numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE, Ints
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.framing.messagepack import text
from daskwire.decoder.net.segments import DSACK

MAX_DEPTH = 16  # nested fields
MAX_WIDTH = 90  # characters of a value
FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"), (8, "PSH"), (16, "ACK"))


@dataclass(frozen=True)
class Packet:
    """A packet of an exchange.

    Attributes:
        time_ms: time since the first packet of the exchange.
        source: sending node.
        destination: receiving node.
        flags: names of its TCP flags.
        seq: relative sequence number.
        ack: relative acknowledgement number.
        payload_bytes: TCP payload.
        frame_bytes: length of the frame on the wire.
        received_twice: it has a D-SACK.
    """

    time_ms: float
    source: str
    destination: str
    flags: str
    seq: int
    ack: int
    payload_bytes: int
    frame_bytes: int
    received_twice: bool


def exchange_rows(capture: Capture, request: int) -> list[int]:
    """Return the segment rows of an exchange, from the request's first to the ACK of the reply."""
    rows: list[int] = np.sort(np.concatenate(_exchange_lanes(capture, request))).tolist()
    return rows


def exchange_length(capture: Capture, request: int) -> int:
    """Return the number of segments of an exchange."""
    return sum(map(len, _exchange_lanes(capture, request)))


def _exchange_lanes(capture: Capture, request: int) -> list[Ints]:
    """Return the segment rows of an exchange, by flow."""
    messages, segments = capture.messages, capture.segments
    flow, answer = int(messages.flow[request]), int(messages.answer[request])
    own, other = capture.lanes.rows(flow), capture.lanes.rows(flow ^ 1)
    last_ns = messages.end_ns[answer if answer != NONE else request]
    begin = np.searchsorted(segments.time_ns, messages.time_ns[request])
    end = np.searchsorted(segments.time_ns, last_ns, side="right")
    if answer != NONE:  # the requester's next segment acknowledges the reply
        following = own[np.searchsorted(own, end) :]
        end = following[0] + 1 if len(following) else len(segments)
    return [lane[slice(*np.searchsorted(lane, (begin, end)))] for lane in (own, other)]


def packets(capture: Capture, request: int) -> list[Packet]:
    """Return the packets from a request (a row of messages) to the ACK of its reply."""
    segments, flow = capture.segments, int(capture.messages.flow[request])
    zero = {flow: _zero(capture, flow), flow ^ 1: _zero(capture, flow ^ 1)}
    rows = exchange_rows(capture, request)
    result = []
    for row in rows:
        sender, flags = int(segments.flow[row]), int(segments.flags[row])
        result.append(
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
    return result


def exchange(capture: Capture, request: int) -> list[str]:
    """Format the packets of an exchange, one line each, and the fields of its two messages."""
    lines = [
        f"{packet.time_ms:+10.3f} ms  {packet.source:>10} -> {packet.destination:<10}  "
        f"{packet.flags:<11} seq {packet.seq:<8} ack {packet.ack:<8} len {packet.payload_bytes:<6}"
        f"{'  D-SACK: received twice' if packet.received_twice else ''}"
        for packet in packets(capture, request)
    ]
    if not lines:
        return []
    answer = int(capture.messages.answer[request])
    lines += ["", *_describe(capture, request, "request")]
    return lines + (_describe(capture, answer, "reply") if answer != NONE else ["no reply in the capture"])


def _zero(capture: Capture, flow: int) -> int:
    """Return the base of relative sequence numbers. As in Wireshark, the first data byte is number 1."""
    index = np.flatnonzero(capture.pieces.flow == flow)
    return int(capture.pieces.zero[index[0]]) - 1 if len(index) else 0


def fields(capture: Capture, message: int) -> dict[str, Any] | None:
    """Return the decoded fields of a message by dotted path, None if its body is not in the capture."""
    content = capture.content(message)
    return None if content is None else flat(content)


def _describe(capture: Capture, message: int, title: str) -> list[str]:
    size, values = int(capture.messages.size[message]), fields(capture, message)
    if values is None:
        return [f"{title} ({size} bytes): its body is not in the capture"]
    return [
        f"{title} ({size} bytes):",
        *(f"    {path} = {shortened(value)}" for path, value in values.items()),
    ]


def shortened(value: Any) -> str:
    """Format a value on one line of limited length."""
    line = repr(value) if isinstance(value, str | bytes) else text(value)
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 3] + "..."


def flat(content: Any, path: str = "", depth: int = 0) -> dict[str, Any]:
    """Flatten nested fields: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    if not isinstance(content, Mapping) or not content or depth == MAX_DEPTH:
        return {path: content}
    result: dict[str, Any] = {}
    for key, value in content.items():
        result |= flat(value, f"{path}.{text(key)}" if path else text(key), depth + 1)
    return result
