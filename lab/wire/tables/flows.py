"""The table of flows: how TCP fared, and how complete the capture is."""

from __future__ import annotations

import numpy as np

from lab.wire.capture import Capture
from lab.wire.net import health
from lab.wire.net.segments import RST
from lab.wire.schema import Table, add_row, empty


def flows(capture: Capture) -> Table:
    """One row per flow that had a packet."""
    segments, number = capture.segments, len(capture.connections) * 2
    everything = np.ones(len(segments), bool)
    copied = health.copies(segments)
    packets = health.count(segments, everything, number)
    copy_count = health.count(segments, copied, number)
    payload = health.total(segments, segments.length, number)
    again, again_bytes, late = health.resent(segments, capture.disorder, copied, number)
    spurious, closed = health.spurious(segments, number), health.zero_windows(segments, number)
    resets = health.count(segments, segments.flags & RST != 0, number)
    trips = health.round_trips(segments, capture.pieces, capture.disorder, number)
    opened = health.handshakes(segments.take(np.flatnonzero(~copied)))
    holes = health.acked_but_unseen(segments, capture.pieces)
    stream = _stream_bytes(capture, number)
    table = empty("flows")
    for flow in np.flatnonzero(packets).tolist():
        _, port, _, peer_port = capture.connections.endpoints(flow)
        attempts, handshake_ms = opened.get(flow // 2, (0, float("nan")))
        _, missing, lost = holes.get(flow, (0, 0, 0))
        protocol, generation, unframed, resyncs = _framing(capture, flow)
        add_row(
            table,
            str(capture.sources[flow]),
            port,
            str(capture.sources[flow ^ 1]),
            peer_port,
            protocol,
            generation,
            int(packets[flow]),
            int(copy_count[flow]),
            int(payload[flow]),
            int(stream[flow]),
            missing,
            lost,
            unframed,
            resyncs,
            int(again[flow]),
            int(again_bytes[flow]),
            int(spurious[flow]),
            int(late[flow]),
            int(closed[flow]),
            int(resets[flow]),
            attempts,
            _known(handshake_ms),
            _known(float(trips.minimum_ms[flow])),
            _known(float(trips.p5_ms[flow])),
            int(trips.samples[flow]),
        )
    return table


def _known(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)


def _framing(capture: Capture, flow: int) -> tuple[str, str, int, int]:
    dialogue = capture.dialogues.get(flow // 2)
    if dialogue is None:
        return capture.other_protocols.get(flow // 2, ""), "", 0, 0
    framed = dialogue.framed.get(flow % 2)
    if framed is None:
        return dialogue.protocol, "", 0, 0
    return dialogue.protocol, capture.generation, framed.unframed, framed.resyncs


def _stream_bytes(capture: Capture, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Length of each flow's stream, holes included."""
    pieces, result = capture.pieces, np.zeros(number, np.int64)
    for index, flow in enumerate(pieces.flow.tolist()):
        first, last = int(pieces.begin[index]), int(pieces.begin[index + 1]) - 1
        start = 0 if pieces.opened[index] else int(pieces.start[first])
        result[flow] = int(pieces.start[last] + pieces.length[last]) - start
    return result
