"""Tables of messages: ops, composition, transfers and their parts, heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskwire.analysis.tables.traffic import exchange_length
from daskwire.base.arrays import NONE, Ints
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import MessageKind, number, text
from daskwire.decoder.dask.messages import Messages
from daskwire.decoder.dask.payload import parts

# The tables messages, ops and composition.

KINDS = [kind.name.lower() for kind in MessageKind]


def message_ops(capture: Capture) -> list[str]:
    """Describe each message: its op, the ops of a batch joined by +, or the request that it answers."""
    messages = capture.messages
    names: list[str] = [""] * len(messages)
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        names[message] = f"{names[message]}+{op}" if names[message] else op
    rows, rest = _names_without_op(messages)
    for index, name in zip(rows.tolist(), rest, strict=True):
        names[index] = name
    return names


def messages(capture: Capture) -> Table:
    """Build one row per Dask message."""
    table = capture.messages
    source, destination = capture.sources[table.flow], capture.sources[table.flow ^ 1]
    ops = (
        np.bincount(table.op_message, minlength=len(table))
        if len(table.op_message)
        else np.zeros(len(table), int)
    )
    return {
        "time_ns": table.time_ns.tolist(),
        "end_ns": table.end_ns.tolist(),
        "source": source.tolist(),
        "destination": destination.tolist(),
        "connection": (table.flow // 2).tolist(),
        "kind": [KINDS[k] for k in table.kind.tolist()],
        "op": message_ops(capture),
        "ops": ops.tolist(),
        "bytes": table.size.tolist(),
        "frames": table.frames.tolist(),
        "body_bytes": table.body_size.tolist(),
        "seen_bytes": table.seen.tolist(),
        "answer": table.answer.tolist(),
        "cluster": capture.clusters[table.flow].tolist(),
    }


def ops(capture: Capture) -> Table:
    """Build one row per op, including those in batches."""
    messages = capture.messages
    flow = messages.flow[messages.op_message]
    return {
        "time_ns": messages.time_ns[messages.op_message].tolist(),
        "source": capture.sources[flow].tolist(),
        "destination": capture.sources[flow ^ 1].tolist(),
        "op": list(messages.op_name),
        "key": [None if key is None else text(key) for key in messages.op_key],
        "message": messages.op_message.tolist(),
        "cluster": capture.clusters[flow].tolist(),
    }


def composition(capture: Capture) -> Table:
    """Count the ops of each sender, and their bytes. A message without an op counts by what it is."""
    messages = capture.messages
    owners = list(zip(capture.clusters.tolist(), capture.sources.tolist(), strict=True))
    owner_numbers = {owner: number for number, owner in enumerate(sorted(set(owners)))}
    owner = np.array([owner_numbers[own] for own in owners], np.int64)[messages.flow]
    rest, names_of_rest = _names_without_op(messages)
    names, of_ops = messages.op_numbers
    numbers = {name: number for number, name in enumerate(names)}
    of_rest = [
        numbers.setdefault(name or KINDS[kind], len(numbers))
        for name, kind in zip(names_of_rest, messages.kind[rest].tolist(), strict=True)
    ]
    message, name = np.append(messages.op_message, rest), np.append(of_ops, np.array(of_rest, np.int64))
    rows, row = np.unique(owner[message] * len(numbers) + name, return_inverse=True)
    _, first = np.unique(message * len(numbers) + name, return_index=True)
    share = messages.size[message] / np.bincount(message, minlength=len(messages))[message]
    columns = np.bincount(row), np.bincount(row[first]), np.round(np.bincount(row, share)).astype(np.int64)
    heads, labels, table = sorted(set(owners)), list(numbers), empty("composition")
    body = [
        (*heads[code // len(labels)], labels[code % len(labels)], *counts)
        for code, *counts in zip(rows.tolist(), *(column.tolist() for column in columns), strict=True)
    ]
    for cluster, sender, op, *counts in sorted(body, key=lambda row: (*row[:2], -row[3], row[2])):
        add_row(table, sender, op, *counts, cluster)
    return table


def _names_without_op(messages: Messages) -> tuple[Ints, list[str]]:
    """Return the messages without an op, and what each is; nothing for some, which are not decoded."""
    rows = np.flatnonzero(~np.isin(messages.kind, (MessageKind.BATCH, MessageKind.REQUEST)))
    names, numbers = messages.op_numbers
    requests = np.searchsorted(messages.op_message, messages.answer[rows])
    columns = messages.kind[rows], messages.answer[rows], requests
    result = []
    for kind, answer, request in zip(*(column.tolist() for column in columns), strict=True):
        if kind == MessageKind.HANDSHAKE:
            result.append("handshake")
        elif answer != NONE:
            result.append(f"reply to {names[numbers[request]]}")
        else:
            result.append("OK" if kind == MessageKind.TEXT else "")
    return rows, result


# The tables transfers and parts: data sent between nodes, and the objects in it.

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


# The table of worker heartbeats.


def heartbeats(capture: Capture) -> Table:
    """Build one row per worker heartbeat and its reply."""
    messages, table = capture.messages, empty("heartbeats")
    last: dict[tuple[str, str], int] = {}  # by cluster and address, so that a restarted worker starts over
    for message, _, fields in capture.decoded("heartbeat_worker"):
        worker, time_ns = str(capture.sources[messages.flow[message]]), int(messages.time_ns[message])
        cluster = str(capture.clusters[messages.flow[message]])
        process = cluster, text(fields.get("address") or worker)
        answer = int(messages.answer[message])
        reply = _reply(capture, answer)
        announced = number(reply.get("heartbeat-interval"))
        metrics = fields.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        answer_ns = int(messages.time_ns[answer] - messages.end_ns[message]) if answer != NONE else None
        add_row(
            table,
            time_ns,
            worker,
            (time_ns - last[process]) / 1e6 if process in last else None,
            announced * 1e3 if announced is not None else None,
            int(messages.size[message]),
            int(messages.size[answer]) if answer != NONE else None,
            answer_ns / 1e6 if answer_ns is not None else None,
            exchange_length(capture, message),
            number(metrics.get("cpu")),
            number(metrics.get("memory")),
            _executing(metrics),
            _latency(metrics),
            cluster,
        )
        last[process] = time_ns
    return table


def _reply(capture: Capture, answer: int) -> dict[Any, Any]:
    content = capture.content(answer) if answer != NONE else None
    return content if isinstance(content, dict) else {}


def _executing(metrics: dict[Any, Any]) -> int | None:
    """Read ``executing`` (G1 and early G2), or ``task_counts`` (later versions), seceded tasks included."""
    counts = metrics.get("task_counts")
    if isinstance(counts, dict):
        values = [counts.get(state, 0) for state in ("executing", "long-running")]
    else:
        values = [metrics.get("executing")]
    return sum(values) if all(isinstance(value, int) for value in values) else None


def _latency(metrics: dict[Any, Any]) -> float | None:
    digests = metrics.get("digests_total_since_heartbeat")
    value = number(digests.get("latency")) if isinstance(digests, dict) else None
    return round(value * 1e3, 3) if value is not None else None
