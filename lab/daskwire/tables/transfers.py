"""The tables transfers and parts: data sent between nodes, and the objects in it."""

from __future__ import annotations

import numpy as np

from daskwire.capture import Capture
from daskwire.dask.content import MessageKind
from daskwire.dask.payload import parts
from daskwire.schema import Table, add_row, empty

FETCHES = {"get_data", "gather"}
PUSHES = {"shuffle_receive", "update_data", "scatter"}


def transfers(capture: Capture) -> tuple[Table, Table]:
    """Build one row per transfer (FETCHES and PUSHES), and one per object in it."""
    messages, table, parts_table = capture.messages, empty("transfers"), empty("parts")
    acks = _acknowledgements(capture)
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        answer = int(messages.answer[message])
        if op in FETCHES and answer >= 0:
            _transfer(capture, table, parts_table, op, message, answer, acks.get(answer))
        elif op in PUSHES and messages.kind[message] == MessageKind.REQUEST:
            _transfer(capture, table, parts_table, op, message, message, answer if answer >= 0 else None)
    return table, parts_table


def _acknowledgements(capture: Capture) -> dict[int, int]:
    """Map each reply with data to the plain "OK" that its receiver sent next on the same connection."""
    messages, pending, acks = capture.messages, {}, {}
    for index in np.flatnonzero(
        (messages.kind == MessageKind.REPLY) | (messages.kind == MessageKind.TEXT)
    ).tolist():
        flow = int(messages.flow[index])
        if messages.kind[index] == MessageKind.REPLY:
            pending[flow] = index
        elif messages.answer[index] < 0 and (reply := pending.pop(flow ^ 1, None)) is not None:
            acks[reply] = index
    return acks


def _transfer(
    capture: Capture, table: Table, parts_table: Table, op: str, request: int, data: int, ack: int | None
) -> None:
    messages = capture.messages
    flow = int(messages.flow[data])
    objects = parts(messages, data, capture.conversations)
    status = _status(capture, data if data != request else ack)
    serve_ns = int(messages.time_ns[data] - messages.end_ns[request]) if data != request else 0
    memory = [part.bytes for part in objects]
    add_row(
        table,
        op,
        str(capture.sources[flow]),
        str(capture.sources[flow ^ 1]),
        int(messages.time_ns[request]),
        serve_ns / 1e6,
        int(messages.end_ns[data] - messages.time_ns[data]) / 1e6,
        int(messages.time_ns[ack] - messages.end_ns[data]) / 1e6 if ack is not None else None,
        len({part.key for part in objects}),
        int(messages.size[data]),
        sum(part.wire_bytes for part in objects),
        None if None in memory else sum(m for m in memory if m is not None),
        "+".join(sorted({part.compression for part in objects} - {""})),
        status,
        *_speed(capture, data),
        str(capture.clusters[flow]),
    )
    for part in objects:
        add_row(
            parts_table,
            len(table["kind"]) - 1,
            part.key,
            part.wire_bytes,
            part.bytes,
            part.serializer,
            part.type,
            part.dtype,
            part.shape,
            part.compression,
        )


def _speed(capture: Capture, message: int) -> tuple[float | None, float | None]:
    """Return the throughput of a message in MB/s, and the smallest RTT of its flow in ms."""
    messages = capture.messages
    duration_ns = int(messages.end_ns[message] - messages.time_ns[message])
    rtt_ms = float(capture.round_trips.minimum_ms[messages.flow[message]])
    mb_s = round(int(messages.size[message]) / 1e6 / (duration_ns / 1e9), 3) if duration_ns > 0 else None
    return mb_s, None if rtt_ms != rtt_ms else round(rtt_ms, 4)


def _status(capture: Capture, message: int | None) -> str | None:
    if message is None:
        return None
    content = capture.content(message)
    if content is None:
        return None
    status = content.get("status", "OK") if isinstance(content, dict) else content
    return status if isinstance(status, str) else "OK"
