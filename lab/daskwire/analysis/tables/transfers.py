"""The tables transfers and parts: data sent between nodes, and the objects in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.framing.content import MessageKind
from daskwire.decoder.dask.messages import Messages
from daskwire.decoder.dask.payload import parts

FETCHES = {"get_data", "gather"}
PUSHES = {"shuffle_receive", "update_data", "scatter"}
OUTLINE = ("kind", "source", "destination", "wire_ms", "bytes", "status", "cluster")


@dataclass(frozen=True)
class Transfer:
    """A transfer by its op and messages: the request, the data (the request itself for PUSHES), the OK."""

    op: str
    request: int
    data: int
    ack: int | None


def transfers(capture: Capture) -> tuple[Table, Table]:
    """Build one row per transfer (FETCHES and PUSHES), and one per object in it."""
    table, parts_table = empty("transfers"), empty("parts")
    for transfer in _transfers(capture):
        _add(capture, table, parts_table, transfer)
    return table, parts_table


def slowest(capture: Capture, number: int) -> Table:
    """Return the rows of the table whose data took longest on the wire, without building the others."""
    table, wire_ms = empty("transfers"), partial(_wire_ms, capture.messages)
    for transfer in sorted(_transfers(capture), key=wire_ms, reverse=True)[:number]:
        _add(capture, table, empty("parts"), transfer)
    return table


def step_times(capture: Capture) -> dict[str, list[Any]]:
    """Return the columns serve_ms, wire_ms and receive_ms of all ``get_data``, without building the table."""
    messages = capture.messages
    steps = [_steps_ms(messages, transfer) for transfer in _transfers(capture) if transfer.op == "get_data"]
    columns = zip(*steps, strict=True) if steps else ((), (), ())
    return dict(zip(("serve_ms", "wire_ms", "receive_ms"), map(list, columns), strict=True))


def outline(capture: Capture) -> Table:
    """Return some columns of the table, without describing the objects, which takes most of its time."""
    messages = capture.messages
    result: Table = {name: [] for name in OUTLINE}
    for transfer in _transfers(capture):
        data, flow = transfer.data, int(messages.flow[transfer.data])
        add_row(
            result,
            transfer.op,
            str(capture.sources[flow]),
            str(capture.sources[flow ^ 1]),
            _wire_ms(messages, transfer),
            int(messages.size[data]),
            _status(capture, data if data != transfer.request else transfer.ack),
            str(capture.clusters[flow]),
        )
    return result


def _transfers(capture: Capture) -> Iterator[Transfer]:
    messages, acks = capture.messages, _acknowledgements(capture)
    for row in messages.ops_named(FETCHES | PUSHES).tolist():
        op, message = messages.op_name[row], int(messages.op_message[row])
        answer = int(messages.answer[message])
        if op in FETCHES and answer != NONE:
            yield Transfer(op, message, answer, acks.get(answer))
        elif op in PUSHES and messages.kind[message] == MessageKind.REQUEST:
            yield Transfer(op, message, message, answer if answer != NONE else None)


def _steps_ms(messages: Messages, transfer: Transfer) -> tuple[float, float, float | None]:
    """Return the time to serve, on the wire, and until the receiver's OK."""
    request, data, ack = transfer.request, transfer.data, transfer.ack
    serve_ns = int(messages.time_ns[data] - messages.end_ns[request]) if data != request else 0
    receive_ms = int(messages.time_ns[ack] - messages.end_ns[data]) / 1e6 if ack is not None else None
    return serve_ns / 1e6, _wire_ms(messages, transfer), receive_ms


def _wire_ms(messages: Messages, transfer: Transfer) -> float:
    return int(messages.end_ns[transfer.data] - messages.time_ns[transfer.data]) / 1e6


def _acknowledgements(capture: Capture) -> dict[int, int]:
    """Map each reply with data to the plain "OK" that its receiver sent next on the same connection."""
    messages, pending, acks = capture.messages, {}, {}
    is_reply = messages.kind == MessageKind.REPLY
    rows = np.flatnonzero(is_reply | ((messages.kind == MessageKind.TEXT) & (messages.answer == NONE)))
    for index, flow, carries in zip(
        rows.tolist(), messages.flow[rows].tolist(), is_reply[rows].tolist(), strict=True
    ):
        if carries:
            pending[flow] = index
        elif (reply := pending.pop(flow ^ 1, None)) is not None:
            acks[reply] = index
    return acks


def _add(capture: Capture, table: Table, parts_table: Table, transfer: Transfer) -> None:
    messages, request, data, ack = capture.messages, transfer.request, transfer.data, transfer.ack
    flow = int(messages.flow[data])
    objects = parts(messages, data, capture.conversations)
    status = _status(capture, data if data != request else ack)
    memory = [part.bytes for part in objects]
    add_row(
        table,
        transfer.op,
        str(capture.sources[flow]),
        str(capture.sources[flow ^ 1]),
        int(messages.time_ns[request]),
        *_steps_ms(messages, transfer),
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
