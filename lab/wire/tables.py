"""Tables about messages and traffic. Each function takes a capture and gives a table of
``lab.wire.schema``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lab.wire.content import Kind
from lab.wire.lockstep import Ints
from lab.wire.schema import Table, add_row, empty

if TYPE_CHECKING:
    from lab.wire.capture import Capture

ETHERNET_PAYLOAD = 1500 - 20 - 20
KINDS = [kind.name.lower() for kind in Kind]


def message_ops(capture: Capture) -> list[str]:
    """For each message what it is: its op, its batch's ops joined by +, or what it answers."""
    messages = capture.messages
    names: list[str] = [""] * len(messages)
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        names[message] = f"{names[message]}+{op}" if names[message] else op
    for index in np.flatnonzero(messages.kind != Kind.BATCH).tolist():
        if names[index]:
            continue
        kind, answer = messages.kind[index], int(messages.answer[index])
        if kind == Kind.HANDSHAKE:
            names[index] = "handshake"
        elif answer >= 0:
            names[index] = f"reply to {names[answer]}"
        elif kind == Kind.TEXT:
            names[index] = "OK"
    return names


def messages(capture: Capture) -> Table:
    """One row per Dask message."""
    found = capture.messages
    source, destination = capture.sources[found.flow], capture.sources[found.flow ^ 1]
    ops = (
        np.bincount(found.op_message, minlength=len(found))
        if len(found.op_message)
        else np.zeros(len(found), int)
    )
    return {
        "time_ns": found.time_ns.tolist(),
        "end_ns": found.end_ns.tolist(),
        "source": source.tolist(),
        "destination": destination.tolist(),
        "connection": (found.flow // 2).tolist(),
        "kind": [KINDS[k] for k in found.kind.tolist()],
        "op": message_ops(capture),
        "ops": ops.tolist(),
        "bytes": found.size.tolist(),
        "frames": found.frames.tolist(),
        "body_bytes": found.body_size.tolist(),
        "seen_bytes": found.seen.tolist(),
        "answer": found.answer.tolist(),
    }


def ops(capture: Capture) -> Table:
    """One row per op, those in batches included."""
    found = capture.messages
    flow = found.flow[found.op_message]
    return {
        "time_ns": found.time_ns[found.op_message].tolist(),
        "source": capture.sources[flow].tolist(),
        "destination": capture.sources[flow ^ 1].tolist(),
        "op": list(found.op_name),
        "key": [None if key is None else str(key) for key in found.op_key],
        "message": found.op_message.tolist(),
    }


def composition(capture: Capture) -> Table:
    """What each node says: ops by sender."""
    found = capture.messages
    names = message_ops(capture)
    count: Counter[tuple[str, str]] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    size: defaultdict[tuple[str, str], float] = defaultdict(float)
    sender = capture.sources[found.flow].tolist()
    per_message = np.bincount(found.op_message, minlength=len(found))
    last: tuple[int, str] = (-1, "")
    for message, op in sorted(zip(found.op_message.tolist(), found.op_name, strict=True)):
        row = (sender[message], op)
        count[row] += 1
        held[row] += (message, op) != last
        size[row] += int(found.size[message]) / int(per_message[message])
        last = (message, op)
    for index in np.flatnonzero(~np.isin(found.kind, (Kind.BATCH, Kind.REQUEST))).tolist():
        row = (sender[index], names[index] or KINDS[found.kind[index]])
        count[row] += 1
        held[row] += 1
        size[row] += int(found.size[index])
    table = empty("composition")
    for row in sorted(count, key=lambda r: (r[0], -count[r], r[1])):
        add_row(table, row[0], row[1], count[row], held[row], round(size[row]))
    return table


def matrix(capture: Capture) -> Table:
    """Traffic by pair of nodes."""
    segments, found = capture.segments, capture.messages
    flows = len(capture.sources)
    packets = np.bincount(segments.flow, minlength=flows)
    columns = [
        packets,
        np.bincount(segments.flow[segments.length > 0], minlength=flows),
        np.bincount(segments.flow, segments.ip_bytes, minlength=flows),
        np.bincount(segments.flow, segments.length, minlength=flows),
        np.bincount(found.flow, minlength=flows),
        np.bincount(found.flow, found.size, minlength=flows),
    ]
    table = empty("matrix")
    for (source, destination), rows in _pairs(capture).items():
        add_row(table, source, destination, *(int(column[rows].sum()) for column in columns))
    return table


def _pairs(capture: Capture) -> dict[tuple[str, str], Ints]:
    """Flows of each pair of nodes, sorted by name."""
    pairs: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for flow, source in enumerate(capture.sources.tolist()):
        pairs[source, str(capture.sources[flow ^ 1])].append(flow)
    return {pair: np.array(pairs[pair], np.int64) for pair in sorted(pairs)}


def series(capture: Capture) -> Table:
    """Traffic by pair of nodes and second."""
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
    used, place = np.unique(code, return_inverse=True)
    packets = np.bincount(place)
    ip_bytes, payload = np.bincount(place, segments.ip_bytes), np.bincount(place, segments.length)
    names = list(pairs)
    for index, value in enumerate(used.tolist()):
        when, pair = divmod(value, len(pairs))
        row = (first + when, *names[pair], int(packets[index]), int(ip_bytes[index]), int(payload[index]))
        add_row(table, *row)
    return table


def packets(capture: Capture) -> Table:
    """What packets looked like by sender, and whether offloads shaped them."""
    segments = capture.segments
    table = empty("packets")
    senders = capture.sources[segments.flow]
    for source in sorted(set(capture.sources.tolist())):
        length = segments.length[senders == source]
        if len(length):
            _packet_row(table, source, length)
    return table


def _packet_row(table: Table, source: str, length: npt.NDArray[np.uint32]) -> None:
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
    )
