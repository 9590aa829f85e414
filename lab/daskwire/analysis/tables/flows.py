"""The table of flows: TCP analysis, and completeness of the capture."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskwire.analysis.tables.completeness import PLAIN, missing_messages
from daskwire.base.arrays import Floats, Ints
from daskwire.base.schema import TABLES, Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.net import health
from daskwire.decoder.net.segments import RST

DESCRIBED = (
    "source", "source_port", "destination", "destination_port", "protocol", "generation", "unframed_bytes",
    "resyncs", "cluster",
)  # fmt: skip


def flows(capture: Capture) -> Table:
    """Build one row per flow with a packet, or with bytes that the other side acknowledged."""
    columns = _traffic(capture) | _losses(capture) | _times(capture)
    present = np.flatnonzero(columns["packets"] + columns["missing_bytes"])
    described = _described(capture, present)
    return {
        name: described[name] if name in described else _plain(columns[name][present])
        for name in TABLES["flows"]
    }


def _plain(column: Ints | Floats) -> list[Any]:
    """Convert numbers for a table; NaN becomes None."""
    values: list[Any] = np.round(column, 4).tolist() if column.dtype.kind == "f" else column.tolist()
    return [None if value != value else value for value in values]


def _described(capture: Capture, present: Ints) -> dict[str, list[Any]]:
    """Build the columns about endpoints and framing."""
    rows = []
    for flow in present.tolist():
        _, port, _, peer_port = capture.connections.endpoints(flow)
        protocol, generation, unframed, resyncs = _framing(capture, flow)
        source, destination = str(capture.sources[flow]), str(capture.sources[flow ^ 1])
        described = (source, port, destination, peer_port, protocol, generation, unframed, resyncs)
        rows.append((*described, str(capture.clusters[flow])))
    return {name: [row[i] for row in rows] for i, name in enumerate(DESCRIBED)}


def _framing(capture: Capture, flow: int) -> tuple[str, str, int, int]:
    conversation = capture.conversations.get(flow // 2)
    if conversation is None:
        return capture.other_protocols.get(flow // 2, ""), "", 0, 0
    framed, extent = conversation.framed.get(flow % 2), capture.extents
    if framed is None:
        generation = "" if flow in capture.pieces.flow else capture.generation  # no packet was captured
        return conversation.protocol, generation, 0, 0
    unframed = framed.unframed
    if conversation.protocol != PLAIN:  # nothing after a hole can be decoded
        unframed += max(int(extent.end[flow] - extent.hole[flow] - extent.missing[flow]), 0)
    return conversation.protocol, capture.generation, unframed, framed.resyncs


def _traffic(capture: Capture) -> dict[str, Ints]:
    segments, number, extent = capture.segments, len(capture.connections) * 2, capture.extents
    return {
        "packets": np.bincount(segments.flow, minlength=number),
        "payload_bytes": health.total(segments, segments.length, number),
        "stream_bytes": extent.end - extent.begin,
        "missing_bytes": extent.missing,
        "lost_bytes": extent.lost,
        "missing_messages": missing_messages(capture),
        "began_before": np.repeat(~capture.lives.opened, 2).astype(np.int64),
        "open_at_end": np.repeat(~capture.lives.closed, 2).astype(np.int64),
    }


def _losses(capture: Capture) -> dict[str, Ints]:
    segments, number = capture.segments, len(capture.connections) * 2
    copied = capture.copied
    resent, resent_bytes, late = health.resent(segments, capture.disorder, copied, number)
    return {
        "copies": health.count(segments, copied, number),
        "retransmitted": resent,
        "retransmitted_bytes": resent_bytes,
        "spurious": health.spurious(segments, copied, capture.disorder.resent[capture.needless], number),
        "out_of_order": late,
        "zero_windows": health.zero_windows(segments, copied, number),
        "rst_packets": health.count(segments, (segments.flags & RST != 0) & ~copied, number),
        "resets": health.resets(segments, number),
    }


def _times(capture: Capture) -> dict[str, Ints | Floats]:
    segments, number = capture.segments, len(capture.connections) * 2
    attempts, handshake_ms = np.zeros(number, np.int64), np.full(number, np.nan)
    for connect in health.connects(segments, capture.lanes, capture.copied, number):
        flows_of = [connect.flow, connect.flow ^ 1]
        attempts[flows_of] = connect.attempts
        handshake_ms[flows_of] = np.nan if connect.ms is None else connect.ms
    trips = capture.round_trips
    return {
        "attempts": attempts,
        "handshake_ms": handshake_ms,
        "rtt_min_ms": trips.minimum_ms,
        "rtt_p5_ms": trips.p5_ms,
        "rtt_samples": trips.samples,
    }
