"""The tables messages, ops and composition."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from daskwire.arrays import NONE
from daskwire.capture import Capture
from daskwire.dask.framing.content import MessageKind
from daskwire.dask.framing.messagepack import text
from daskwire.schema import Table, add_row, empty

KINDS = [kind.name.lower() for kind in MessageKind]


def message_ops(capture: Capture) -> list[str]:
    """Describe each message: its op, the ops of a batch joined by +, or the request that it answers."""
    messages = capture.messages
    names: list[str] = [""] * len(messages)
    for message, op in zip(messages.op_message.tolist(), messages.op_name, strict=True):
        names[message] = f"{names[message]}+{op}" if names[message] else op
    for index in np.flatnonzero(messages.kind != MessageKind.BATCH).tolist():
        if names[index]:
            continue
        kind, answer = messages.kind[index], int(messages.answer[index])
        if kind == MessageKind.HANDSHAKE:
            names[index] = "handshake"
        elif answer != NONE:
            names[index] = f"reply to {names[answer]}"
        elif kind == MessageKind.TEXT:
            names[index] = "OK"
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
    """Count the ops of each sender, and their bytes."""
    messages = capture.messages
    names = message_ops(capture)
    number: Counter[tuple[str, str, str]] = Counter()
    number_messages: Counter[tuple[str, str, str]] = Counter()
    size: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    sender, cluster = capture.sources[messages.flow].tolist(), capture.clusters[messages.flow].tolist()
    per_message = np.bincount(messages.op_message, minlength=len(messages))
    last: tuple[int, str] = (-1, "")
    for message, op in sorted(zip(messages.op_message.tolist(), messages.op_name, strict=True)):
        row = (cluster[message], sender[message], op)
        number[row] += 1
        number_messages[row] += (message, op) != last
        size[row] += int(messages.size[message]) / int(per_message[message])
        last = (message, op)
    for index in np.flatnonzero(~np.isin(messages.kind, (MessageKind.BATCH, MessageKind.REQUEST))).tolist():
        row = (cluster[index], sender[index], names[index] or KINDS[messages.kind[index]])
        number[row] += 1
        number_messages[row] += 1
        size[row] += int(messages.size[index])
    table = empty("composition")
    for row in sorted(number, key=lambda r: (r[0], r[1], -number[r], r[2])):
        add_row(table, row[1], row[2], number[row], number_messages[row], round(size[row]), row[0])
    return table
