"""How complete a capture is: its bytes, its messages, and its connections from opening to closing.

TCP numbers bytes, so missing bytes are counted exactly. Messages have no numbers, so how many are missing is
an estimate. Every stretch of a stream that belongs to no known message held at least one. How many it held
follows from the mean size of the flow's messages that would fit into it (with few of them, of all messages),
but it is never more than the number of places at which the receiver acknowledged something in it.

A connection that began before the capture has sent at least Dask's handshake, once in each direction. What
else it sent by then, and what open connections send after the capture, is unknown: they are only counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskwire.arrays import Ints
from daskwire.capture import Capture
from daskwire.dask.content import Kind
from daskwire.dask.dialogues import Dialogue
from daskwire.net.extent import acknowledged

PLAIN = "tcp"
COVERED = {"tls", "ws"}  # may carry Dask, and could not be looked into
WEIGHT = 2  # messages as which the mean size of all counts beside a flow's own


def completeness(capture: Capture) -> dict[str, Any]:
    """Shares are 0 to 1, None where there is nothing to share."""
    flows, found = capture.table("flows"), capture.messages
    dask = [i for i, generation in enumerate(flows["generation"]) if generation]
    stream, missing, lost, unframed, resyncs, messages = (
        sum(flows[name][i] for i in dask)
        for name in (
            "stream_bytes", "missing_bytes", "lost_bytes", "unframed_bytes", "resyncs", "missing_messages",
        )
    )  # fmt: skip
    decoded = int((~np.isin(found.kind, (Kind.CUT, Kind.UNDECODED))).sum())
    connections = np.array(sorted(capture.dialogues), np.int64)
    return {
        "stream_seen": share(stream - missing, stream),
        "lost_by_capture_bytes": lost,
        "framed": share(stream - missing - unframed, stream - missing),
        "resyncs": resyncs,
        "decoded": share(decoded, len(found)),
        "whole": share(int(found.complete.sum()), len(found)),
        "messages_seen": share(len(found), len(found) + messages),
        "messages_missing": messages,
        "began_before": int((~capture.lives.opened[connections]).sum()),
        "open_at_end": int((~capture.lives.closed[connections]).sum()),
        "unrecognised": _unrecognised(capture),
    }


def is_complete(capture: Capture) -> bool:
    """Whether nothing is missing, or may be: not in bytes, messages, connections or files."""
    figures = completeness(capture)
    shares = ("stream_seen", "framed", "decoded", "whole", "messages_seen")
    whole = all(figures[name] == 1.0 for name in shares)
    absent = any(figures[name] for name in ("began_before", "open_at_end", "unrecognised"))
    covered = COVERED & set(capture.other_protocols.values())
    files = any(file.progress.problem or file.progress.dropped for file in capture.files)
    return whole and not (absent or covered or files)


def _unrecognised(capture: Capture) -> int:
    """Count the connections that began before the capture and could be anything.

    TLS and WebSocket are recognised by their first bytes only.
    """
    segments, known = capture.segments, {*capture.dialogues, *capture.other_protocols}
    talking = np.unique(segments.flow[segments.length > 0] >> 1).tolist()
    return sum(c not in known and not capture.lives.opened[c] for c in talking)


def share(part: int, whole: int) -> float | None:
    """Divide; only the whole of it gives 1.0."""
    if not whole:
        return None
    return 1.0 if part == whole else min(round(part / whole, 6), 0.999999)


def missing_messages(capture: Capture) -> Ints:
    """Estimate how many messages of each flow are missing altogether."""
    result = np.zeros(len(capture.sources), np.int64)
    found = capture.messages
    shakes = np.bincount(found.flow[found.kind == Kind.HANDSHAKE], minlength=len(result))
    greets = capture.generation != "G1" or bool(shakes.any())  # the first versions had no handshake
    usual = _Sizes(found.size)
    for connection, dialogue in capture.dialogues.items():
        began_before = not capture.lives.opened[connection]
        for direction in (0, 1):
            flow = 2 * connection + direction
            result[flow] = _in_stretches(capture, dialogue, direction, usual)
            result[flow] += began_before and greets and not shakes[flow]
    return result


class _Sizes:
    """Sizes of messages, ordered, so that sums up to any size cost one search."""

    def __init__(self, sizes: Ints) -> None:
        self._ordered = np.sort(sizes)
        self._sums = np.append(0, np.cumsum(self._ordered))

    def up_to(self, largest: Ints) -> tuple[Ints, Ints]:
        """How many are not larger, and their sum."""
        number = np.searchsorted(self._ordered, largest, side="right").astype(np.int64)
        return number, self._sums[number]


def _in_stretches(capture: Capture, dialogue: Dialogue, direction: int, usual: _Sizes) -> int:
    framed, extent = dialogue.framed.get(direction), capture.extents
    if framed is None and direction in dialogue.streams:
        return 0  # its beginning was seen, and is not Dask
    flow = 2 * dialogue.connection + direction
    rows = framed.table() if framed is not None else np.zeros((0, 5), np.int64)
    begin, end = int(extent.begin[flow]), int(extent.end[flow])
    if dialogue.protocol == PLAIN:
        known_until = np.concatenate([[begin], np.cumsum(rows[:, :2], axis=1)[:, 1]])
        first, last = np.maximum.accumulate(known_until), np.append(rows[:, 0], end)
    else:  # positions of messages are not TCP's; behind a hole no message is known
        first, last = extent.hole[flow : flow + 1], extent.end[flow : flow + 1]
    first, last = first[last > first], last[last > first]
    if not len(first):
        return 0
    acks = acknowledged(capture.segments, capture.lanes, capture.pieces, flow)
    steps = np.searchsorted(acks, last, side="right") - np.searchsorted(acks, first, side="right")
    stretches = last - first
    own, own_bytes = _Sizes(rows[:, 1]).up_to(stretches)
    others, their_bytes = usual.up_to(stretches)
    mean = (own_bytes + WEIGHT * their_bytes / np.maximum(others, 1)) / (own + WEIGHT)
    by_size = np.rint(stretches / np.where(others > 0, mean, stretches))
    number = int(np.clip(by_size, 1, np.maximum(steps, 1)).sum())
    answered = dialogue.framed.get(direction ^ 1) if number and not len(rows) else None
    return max(number, len(answered.table())) if answered else number  # requests have replies
