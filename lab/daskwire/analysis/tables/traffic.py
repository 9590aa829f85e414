"""Tables of the traffic: flows, pairs of nodes, seconds, packet sizes, connections, and one exchange."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.analysis.tables.completeness import PLAIN, missing_messages
from daskwire.base.arrays import NONE, Floats, Ints
from daskwire.base.schema import TABLES, Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import text
from daskwire.decoder.net import health
from daskwire.decoder.net.health import Connect, connects
from daskwire.decoder.net.segments import DSACK, RST

# Show a request and its reply packet by packet, with relative sequence numbers.

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


def exchange_packets(capture: Capture, request: int) -> list[Packet]:
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
        for packet in exchange_packets(capture, request)
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


# The table of flows: TCP analysis, and completeness of the capture.

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


# The tables matrix, series and packets: traffic by pair of nodes, by second, and by packet size.

ETHERNET_PAYLOAD = 1500 - 20 - 20


def matrix(capture: Capture) -> Table:
    """Sum the traffic of each pair of nodes."""
    segments, messages = capture.segments, capture.messages
    flows = len(capture.sources)
    packets = np.bincount(segments.flow, minlength=flows)
    columns = [
        packets,
        np.bincount(segments.flow[segments.length > 0], minlength=flows),
        np.bincount(segments.flow, segments.ip_bytes, minlength=flows),
        np.bincount(segments.flow, segments.length, minlength=flows),
        np.bincount(messages.flow, minlength=flows),
        np.bincount(messages.flow, messages.size, minlength=flows),
    ]
    table = empty("matrix")
    for (cluster, source, destination), rows in _pairs(capture).items():
        sums = [int(column[rows].sum()) for column in columns]
        if any(sums):  # not the other side of a NAT
            add_row(table, source, destination, *sums, cluster)
    return table


def _pairs(capture: Capture) -> dict[tuple[str, str, str], Ints]:
    """Group the flows by pair of nodes, sorted by cluster and name."""
    pairs: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for flow, source in enumerate(capture.sources.tolist()):
        pairs[str(capture.clusters[flow]), source, str(capture.sources[flow ^ 1])].append(flow)
    return {pair: np.array(pairs[pair], np.int64) for pair in sorted(pairs)}


def series(capture: Capture) -> Table:
    """Sum the traffic of each pair of nodes per second."""
    segments = capture.segments
    table = empty("series")
    if not len(segments):
        return table
    pairs = _pairs(capture)
    number = np.zeros(len(capture.sources), np.int64)
    for index, rows in enumerate(pairs.values()):
        number[rows] = index
    second = segments.time_ns // 1_000_000_000
    first = int(second.min())
    code = (second - first) * len(pairs) + number[segments.flow]
    codes, row_of = np.unique(code, return_inverse=True)
    packets = np.bincount(row_of)
    ip_bytes, payload = np.bincount(row_of, segments.ip_bytes), np.bincount(row_of, segments.length)
    names = list(pairs)
    for row, value in enumerate(codes.tolist()):
        elapsed_s, pair = divmod(value, len(pairs))
        cluster, source, destination = names[pair]
        sums = (int(packets[row]), int(ip_bytes[row]), int(payload[row]))
        add_row(table, first + elapsed_s, source, destination, *sums, cluster)
    return table


def packets(capture: Capture) -> Table:
    """Describe the packets of each sender, and whether offloads formed them."""
    segments = capture.segments
    table = empty("packets")
    owners = list(zip(capture.clusters.tolist(), capture.sources.tolist(), strict=True))
    names = sorted(set(owners))
    number_of = {owner: number for number, owner in enumerate(names)}
    sender = np.array([number_of[owner] for owner in owners], np.int32)[segments.flow]
    for number, (cluster, source) in enumerate(names):
        length = segments.length[sender == number]
        if len(length):
            _packet_row(table, source, length, cluster)
    return table


def _packet_row(table: Table, source: str, length: npt.NDArray[np.uint32], cluster: str) -> None:
    data = length[length > 0]
    large = int((data > ETHERNET_PAYLOAD).sum())
    mean = round(float(data.mean()), 1) if len(data) else 0.0
    largest = int(length.max())
    add_row(
        table,
        source,
        len(length),
        len(data),
        len(length) - len(data),
        largest,
        large,
        mean,
        "on" if large else "off",
        cluster,
    )


# The table reach: which node connected to which address, with what success, and how far it is.

Target = tuple[str, str, str, str, int]  # cluster, source, destination, address and port


def reach(capture: Capture) -> Table:
    """Build one row per node and address that it connected to."""
    groups: defaultdict[Target, list[Connect]] = defaultdict(list)
    for connect in connects(capture.segments, capture.lanes, capture.copied, 2 * len(capture.connections)):
        flow = connect.flow
        nodes = str(capture.clusters[flow]), str(capture.sources[flow]), str(capture.sources[flow ^ 1])
        groups[(*nodes, *capture.connections.endpoints(flow)[2:])].append(connect)
    table = empty("reach")
    for (cluster, source, destination, address, port), group in sorted(groups.items()):
        refused = sum(connect.refused for connect in group)
        answered = sum(connect.answered for connect in group)
        handshakes = [connect.ms for connect in group if connect.ms is not None]
        add_row(
            table,
            source,
            destination,
            address,
            port,
            len(group),
            answered,
            refused,
            len(group) - answered - refused,
            round(float(np.median(handshakes)), 3) if handshakes else None,
            round_trip_ms(capture, [connect.flow for connect in group]),
            cluster,
        )
    return table


def round_trip_ms(capture: Capture, flows: list[int]) -> float | None:
    """Return the RTT between both ends of some flows: from the capture point to one, and to the other."""
    parts = [capture.round_trips.minimum_ms[[flow ^ side for flow in flows]] for side in (0, 1)]
    samples = [part[~np.isnan(part)] for part in parts]
    if not all(map(len, samples)):
        return None
    return round(float(sum(part.min() for part in samples)), 3)
