"""An exchange of messages drawn as packets: who sent what, with relative sequence numbers, as the study
drew it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lab.wire.dialogues import dialogue_rows
from lab.wire.frames import UndecodableError
from lab.wire.link import DSACK
from lab.wire.messages import content

if TYPE_CHECKING:
    from lab.wire.capture import Capture

FLAGS = ((2, "SYN"), (1, "FIN"), (4, "RST"), (8, "PSH"), (16, "ACK"))


def exchange(capture: Capture, request: int) -> list[str]:
    """The packets from a request to the ACK of its reply, one line each, and what they said."""
    found, segments = capture.messages, capture.segments
    flow, answer = int(found.flow[request]), int(found.answer[request])
    rows = dialogue_rows(capture, request)
    if not rows:
        return []
    zero = {flow: _zero(capture, flow), flow ^ 1: _zero(capture, flow ^ 1)}
    begin = int(segments.time_ns[rows[0]])
    lines = []
    for row in rows:
        sender, length = int(segments.flow[row]), int(segments.length[row])
        flags = int(segments.flags[row])
        names = ",".join(name for bit, name in FLAGS if flags & bit)
        seq = int(segments.seq[row]) - zero[sender] & 0xFFFFFFFF
        ack = int(segments.ack[row]) - zero[sender ^ 1] & 0xFFFFFFFF
        note = "  D-SACK: received twice" if flags & DSACK else ""
        when = (int(segments.time_ns[row]) - begin) / 1e6
        lines.append(
            f"{when:+10.3f} ms  {capture.sources[sender]!s:>10} -> {capture.sources[sender ^ 1]!s:<10}  "
            f"{names:<11} seq {seq:<8} ack {ack:<8} len {length:<6}{note}"
        )
    lines += ["", *_said(capture, request, "request")]
    return lines + (_said(capture, answer, "reply") if answer >= 0 else ["no reply in the capture"])


def _zero(capture: Capture, flow: int) -> int:
    """Sequence number that is shown as 1 (the first data byte), as Wireshark does."""
    for index, known in enumerate(capture.pieces.flow.tolist()):
        if known == flow:
            return int(capture.pieces.zero[index]) - 1
    return 0


def _said(capture: Capture, message: int, title: str) -> list[str]:
    size = int(capture.messages.size[message])
    try:
        said = content(capture.messages, message, capture.dialogues)
    except (UndecodableError, KeyError):
        return [f"{title} ({size} bytes): its body is not in the capture"]
    return [f"{title} ({size} bytes):", *(f"    {line}" for line in fields(said))]


def fields(said: Any, path: str = "") -> list[str]:
    """Decoded fields, one per line, dicts flattened with dots."""
    if isinstance(said, Mapping) and said:
        return [
            line
            for key, value in said.items()
            for line in fields(value, f"{path}.{key}" if path else str(key))
        ]
    text = repr(said)
    return [f"{path} = {text if len(text) <= 90 else text[:87] + '...'}"]
