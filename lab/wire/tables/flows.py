"""The table of flows: how TCP fared, and how complete the capture is."""

from __future__ import annotations

from typing import Any

import numpy as np

from lab.wire.arrays import Floats, Ints
from lab.wire.capture import Capture
from lab.wire.net import health
from lab.wire.net.segments import RST
from lab.wire.schema import TABLES, Table

DESCRIBED = (
    "source", "source_port", "destination", "destination_port", "protocol", "generation", "unframed_bytes",
    "resyncs",
)  # fmt: skip


def flows(capture: Capture) -> Table:
    """One row per flow that had a packet."""
    columns = _traffic(capture) | _losses(capture) | _times(capture)
    present = np.flatnonzero(columns["packets"])
    described = _described(capture, present)
    return {
        name: described[name] if name in described else _plain(columns[name][present])
        for name in TABLES["flows"]
    }


def _plain(column: Ints | Floats) -> list[Any]:
    """Numbers for a table; None for those that are not known."""
    values: list[Any] = np.round(column, 4).tolist() if column.dtype.kind == "f" else column.tolist()
    return [None if value != value else value for value in values]  # NaN


def _described(capture: Capture, present: Ints) -> dict[str, list[Any]]:
    """Columns that are not counted: whose flow it is, and what is spoken in it."""
    rows = []
    for flow in present.tolist():
        _, port, _, peer_port = capture.connections.endpoints(flow)
        protocol, generation, unframed, resyncs = _framing(capture, flow)
        source, destination = str(capture.sources[flow]), str(capture.sources[flow ^ 1])
        rows.append((source, port, destination, peer_port, protocol, generation, unframed, resyncs))
    return {name: [row[i] for row in rows] for i, name in enumerate(DESCRIBED)}


def _framing(capture: Capture, flow: int) -> tuple[str, str, int, int]:
    dialogue = capture.dialogues.get(flow // 2)
    if dialogue is None:
        return capture.other_protocols.get(flow // 2, ""), "", 0, 0
    framed = dialogue.framed.get(flow % 2)
    if framed is None:
        return dialogue.protocol, "", 0, 0
    return dialogue.protocol, capture.generation, framed.unframed, framed.resyncs


def _traffic(capture: Capture) -> dict[str, Ints]:
    segments, number = capture.segments, len(capture.connections) * 2
    stream, missing, lost = (np.zeros(number, np.int64) for _ in range(3))
    pieces = capture.pieces
    for index, flow in enumerate(pieces.flow.tolist()):
        first, last = int(pieces.begin[index]), int(pieces.begin[index + 1]) - 1
        start = 0 if pieces.opened[index] else int(pieces.start[first])
        stream[flow] = int(pieces.start[last] + pieces.length[last]) - start
    for flow, (_, missed, acknowledged) in health.acked_but_unseen(segments, pieces).items():
        missing[flow], lost[flow] = missed, acknowledged
    return {
        "packets": np.bincount(segments.flow, minlength=number),
        "payload_bytes": health.total(segments, segments.length, number),
        "stream_bytes": stream,
        "missing_bytes": missing,
        "lost_bytes": lost,
    }


def _losses(capture: Capture) -> dict[str, Ints]:
    segments, number = capture.segments, len(capture.connections) * 2
    copied = capture.copied
    again, again_bytes, late = health.resent(segments, capture.disorder, copied, number)
    return {
        "copies": health.count(segments, copied, number),
        "retransmitted": again,
        "retransmitted_bytes": again_bytes,
        "spurious": health.spurious(segments, copied, number),
        "out_of_order": late,
        "zero_windows": health.zero_windows(segments, copied, number),
        "resets": health.count(segments, (segments.flags & RST != 0) & ~copied, number),
    }


def _times(capture: Capture) -> dict[str, Ints | Floats]:
    segments, number = capture.segments, len(capture.connections) * 2
    attempts, handshake_ms = health.handshakes(segments, capture.lanes, capture.copied, number)
    trips = health.round_trips(segments, capture.pieces, capture.disorder, number)
    return {
        "attempts": attempts,
        "handshake_ms": handshake_ms,
        "rtt_min_ms": trips.minimum_ms,
        "rtt_p5_ms": trips.p5_ms,
        "rtt_samples": trips.samples,
    }
