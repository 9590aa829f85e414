"""Tables about what was said: messages, ops, and what each node says."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from daskwire.capture import Capture
from daskwire.dask.content import Kind
from daskwire.dask.messagepack import text
from daskwire.schema import Table, add_row, empty

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
        "cluster": capture.clusters[found.flow].tolist(),
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
        "key": [None if key is None else text(key) for key in found.op_key],
        "message": found.op_message.tolist(),
        "cluster": capture.clusters[flow].tolist(),
    }


def composition(capture: Capture) -> Table:
    """What each node says: ops by sender."""
    found = capture.messages
    names = message_ops(capture)
    count: Counter[tuple[str, str, str]] = Counter()
    held: Counter[tuple[str, str, str]] = Counter()
    size: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    sender, cluster = capture.sources[found.flow].tolist(), capture.clusters[found.flow].tolist()
    per_message = np.bincount(found.op_message, minlength=len(found))
    last: tuple[int, str] = (-1, "")
    for message, op in sorted(zip(found.op_message.tolist(), found.op_name, strict=True)):
        row = (cluster[message], sender[message], op)
        count[row] += 1
        held[row] += (message, op) != last
        size[row] += int(found.size[message]) / int(per_message[message])
        last = (message, op)
    for index in np.flatnonzero(~np.isin(found.kind, (Kind.BATCH, Kind.REQUEST))).tolist():
        row = (cluster[index], sender[index], names[index] or KINDS[found.kind[index]])
        count[row] += 1
        held[row] += 1
        size[row] += int(found.size[index])
    table = empty("composition")
    for row in sorted(count, key=lambda r: (r[0], r[1], -count[r], r[2])):
        add_row(table, row[1], row[2], count[row], held[row], round(size[row]), row[0])
    return table
