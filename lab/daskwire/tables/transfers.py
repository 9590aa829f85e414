"""Tables about data that moved between nodes: the movements, and the objects in them."""

from __future__ import annotations

import numpy as np

from daskwire.capture import Capture
from daskwire.dask.content import Kind
from daskwire.dask.payload import parts
from daskwire.schema import Table, add_row, empty

PUSHED = {"shuffle_receive": "shuffle_receive", "update_data": "update_data", "scatter": "scatter"}


def transfers(capture: Capture) -> tuple[Table, Table]:
    """Movements of data between nodes, fetched (get_data, gather) or pushed (shuffle, scatter), and their
    objects.
    """
    found, table, pieces = capture.messages, empty("transfers"), empty("parts")
    acks = _acknowledgements(capture)
    for message, op in zip(found.op_message.tolist(), found.op_name, strict=True):
        answer = int(found.answer[message])
        if op in ("get_data", "gather") and answer >= 0:
            _transfer(capture, table, pieces, op, message, answer, acks.get(answer))
        elif op in PUSHED and found.kind[message] == Kind.REQUEST:
            _transfer(capture, table, pieces, op, message, message, answer if answer >= 0 else None)
    return table, pieces


def _acknowledgements(capture: Capture) -> dict[int, int]:
    """Reply with data -> the bare "OK" that its receiver sent next on the same connection."""
    found, waiting, acks = capture.messages, {}, {}
    for index in np.flatnonzero((found.kind == Kind.REPLY) | (found.kind == Kind.TEXT)).tolist():
        if found.kind[index] == Kind.REPLY:
            waiting[int(found.flow[index])] = index
        elif found.answer[index] < 0 and (reply := waiting.pop(int(found.flow[index]) ^ 1, None)) is not None:
            acks[reply] = index
    return acks


def _transfer(
    capture: Capture, table: Table, pieces: Table, op: str, request: int, data: int, ack: int | None
) -> None:
    found = capture.messages
    flow = int(found.flow[data])
    objects = parts(found, data, capture.dialogues)
    status = _status(capture, data if data != request else ack)
    serve_ns = int(found.time_ns[data] - found.end_ns[request]) if data != request else 0
    memory = [part.bytes for part in objects]
    add_row(
        table,
        op,
        str(capture.sources[flow]),
        str(capture.sources[flow ^ 1]),
        int(found.time_ns[request]),
        serve_ns / 1e6,
        int(found.end_ns[data] - found.time_ns[data]) / 1e6,
        int(found.time_ns[ack] - found.end_ns[data]) / 1e6 if ack is not None else None,
        len({part.key for part in objects}),
        int(found.size[data]),
        sum(part.wire_bytes for part in objects),
        None if None in memory else sum(m for m in memory if m is not None),
        "+".join(sorted({part.compression for part in objects} - {""})),
        status,
        *_speed(capture, data),
        str(capture.clusters[flow]),
    )
    for part in objects:
        add_row(
            pieces,
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
    """MB/s of a message on the wire, and the smallest round trip of its flow in ms."""
    found = capture.messages
    spent_ns = int(found.end_ns[message] - found.time_ns[message])
    trip_ms = float(capture.round_trips.minimum_ms[found.flow[message]])
    mb_s = round(int(found.size[message]) / 1e6 / (spent_ns / 1e9), 3) if spent_ns > 0 else None
    return mb_s, None if trip_ms != trip_ms else round(trip_ms, 4)


def _status(capture: Capture, message: int | None) -> str | None:
    if message is None:
        return None
    said = capture.said(message)
    if said is None:
        return None
    status = said.get("status", "OK") if isinstance(said, dict) else said
    return status if isinstance(status, str) else "OK"
