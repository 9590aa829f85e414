"""The tables messages, ops and composition."""

from __future__ import annotations

import numpy as np

from daskwire.base.arrays import NONE, Ints
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.framing.content import MessageKind
from daskwire.decoder.dask.framing.messagepack import text
from daskwire.decoder.dask.messages import Messages

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
