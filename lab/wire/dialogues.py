"""Tables that decode messages again: tasks, transfers, heartbeats, gaps between tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.wire.content import Kind
from lab.wire.frames import UndecodableError
from lab.wire.messages import content
from lab.wire.payload import parts
from lab.wire.schema import Table, add_row, empty

if TYPE_CHECKING:
    from lab.wire.capture import Capture

OUTCOMES = {
    "task-finished": "finished",
    "task-erred": "erred",
    "reschedule": "rescheduled",
    "steal-response": "stolen",
}
PUSHED = {"shuffle_receive": "shuffle_receive", "update_data": "update_data", "scatter": "scatter"}


def decoded(capture: Capture, *wanted: str) -> Iterator[tuple[int, str, dict[Any, Any]]]:
    """(message, op, content) of all wanted ops in the capture, in time order, batches taken apart."""
    found = capture.messages
    chosen = sorted(
        {m for m, op in zip(found.op_message.tolist(), found.op_name, strict=True) if op in wanted}
    )
    for message in chosen:
        try:
            said = content(found, message, capture.dialogues)
        except (UndecodableError, KeyError):
            continue
        for item in said if isinstance(said, tuple) else (said,):
            if isinstance(item, dict) and item.get("op") in wanted:
                yield message, str(item["op"]), item


def tasks(capture: Capture) -> Table:
    """One row per compute-task, joined with what its worker said of it last."""
    found, table = capture.messages, empty("tasks")
    open_tasks: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for message, op, said in decoded(capture, "compute-task", *OUTCOMES):
        flow, key = int(found.flow[message]), str(said.get("key"))
        if op == "compute-task":
            worker = str(capture.sources[flow ^ 1])
            open_tasks[worker, key].append(len(table["key"]))
            add_row(table, key, worker, None, int(found.time_ns[message]), *[None] * 10, "open")
        elif capture.sources[flow] != "scheduler" and _ends(op, said):  # it also tells a client task-erred
            worker = str(capture.sources[flow])
            rows = open_tasks[worker, key]
            if not rows:  # its compute-task was not captured
                rows.append(len(table["key"]))
                add_row(table, key, worker, *[None] * 12, "open")
            _report(table, rows.pop(0), said, op, int(found.end_ns[message]))
    return table


def _ends(op: str, said: dict[Any, Any]) -> bool:
    """A worker that answers a steal-request gives a task away only in some states."""
    return op != "steal-response" or said.get("state") in ("ready", "constrained", "waiting")


def _report(table: Table, row: int, said: dict[Any, Any], op: str, end_ns: int) -> None:
    """Fill in what task-finished or task-erred says."""
    steps = list(_steps(said.get("startstops")))
    compute = [(a, b) for action, a, b in steps if action == "compute"]
    start, stop = (compute[0][0], compute[-1][1]) if compute else (None, None)
    sent = table["sent_ns"][row]
    values: dict[str, Any] = {
        "thread": said.get("thread"),
        "start_s": start,
        "stop_s": stop,
        "finished_ns": end_ns,
        "wait_ms": (start - sent / 1e9) * 1e3 if start is not None and sent is not None else None,
        "compute_ms": sum(b - a for a, b in compute) * 1e3 if compute else None,
        "transfer_ms": sum(b - a for action, a, b in steps if action == "transfer") * 1e3,
        "disk_ms": sum(b - a for action, a, b in steps if action.startswith("disk")) * 1e3,
        "report_ms": (end_ns / 1e9 - stop) * 1e3 if stop is not None else None,
        "nbytes": said.get("nbytes"),
        "type": said.get("typename"),
        "outcome": OUTCOMES[op],
    }
    for column, value in values.items():
        table[column][row] = round(value, 3) if column.endswith("_ms") and value is not None else value


def _steps(startstops: Any) -> Iterator[tuple[str, float, float]]:
    """Action, start, stop: dicts today, tuples of three in G1."""
    for step in startstops if isinstance(startstops, tuple) else ():
        if isinstance(step, dict):
            step = (step.get("action"), step.get("start"), step.get("stop"))
        if len(step) == 3 and all(isinstance(t, int | float) for t in step[1:]):
            yield str(step[0]), float(step[1]), float(step[2])


def gaps(capture: Capture) -> Table:
    """Idle time between successive tasks of each worker thread."""
    done, table = capture.table("tasks"), empty("gaps")
    threads: defaultdict[tuple[str, Any], list[tuple[float, float, str]]] = defaultdict(list)
    for row, start in enumerate(done["start_s"]):
        if start is not None:
            key = (done["worker"][row], done["thread"][row])
            threads[key].append((start, done["stop_s"][row], done["key"][row]))
    for (worker, thread), runs in sorted(threads.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        runs.sort()
        for (_, stop, before), (start, _, after) in pairwise(runs):
            add_row(table, worker, thread, before, after, stop, round((start - stop) * 1e3, 3))
    return table


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


def _status(capture: Capture, message: int | None) -> str | None:
    if message is None:
        return None
    try:
        said = content(capture.messages, message, capture.dialogues)
    except (UndecodableError, KeyError):
        return None
    status = said.get("status", "OK") if isinstance(said, dict) else said
    return status if isinstance(status, str) else "OK"


def heartbeats(capture: Capture) -> Table:
    """One row per heartbeat of a worker, with its reply."""
    found, table = capture.messages, empty("heartbeats")
    last: dict[str, int] = {}
    for message, _, said in decoded(capture, "heartbeat_worker"):
        worker, begun = str(capture.sources[found.flow[message]]), int(found.time_ns[message])
        answer = int(found.answer[message])
        reply = _reply(capture, answer)
        announced = reply.get("heartbeat-interval")
        metrics = said.get("metrics")
        metrics = metrics if isinstance(metrics, dict) else {}
        add_row(
            table,
            begun,
            worker,
            (begun - last[worker]) / 1e6 if worker in last else None,
            announced * 1e3 if isinstance(announced, int | float) else None,
            int(found.size[message]),
            int(found.size[answer]) if answer >= 0 else None,
            int(found.time_ns[answer] - found.end_ns[message]) / 1e6 if answer >= 0 else None,
            len(dialogue_rows(capture, message)),
            metrics.get("cpu"),
            metrics.get("memory"),
            _executing(metrics),
            _latency(metrics),
        )
        last[worker] = begun
    return table


def _reply(capture: Capture, answer: int) -> dict[Any, Any]:
    if answer < 0:
        return {}
    try:
        said = content(capture.messages, answer, capture.dialogues)
    except (UndecodableError, KeyError):
        return {}
    return said if isinstance(said, dict) else {}


def _executing(metrics: dict[Any, Any]) -> int | None:
    """G1 and early G2 count in ``executing``, later versions in ``task_counts``."""
    counts = metrics.get("task_counts")
    value = counts.get("executing", 0) if isinstance(counts, dict) else metrics.get("executing")
    return value if isinstance(value, int) else None


def _latency(metrics: dict[Any, Any]) -> float | None:
    digests = metrics.get("digests_total_since_heartbeat")
    value = digests.get("latency") if isinstance(digests, dict) else None
    return round(value * 1e3, 3) if isinstance(value, int | float) else None


def dialogue_rows(capture: Capture, request: int) -> list[int]:
    """Segments of one exchange, from the request's first to the one that acknowledges the reply."""
    found, segments = capture.messages, capture.segments
    flow, answer = int(found.flow[request]), int(found.answer[request])
    rows = capture.rows_of(flow // 2)
    first = int(np.searchsorted(segments.time_ns[rows], found.time_ns[request]))
    until = int(found.end_ns[answer if answer >= 0 else request])
    result = []
    for row in rows[first:].tolist():
        time_ns, own = int(segments.time_ns[row]), segments.flow[row] == flow
        if answer < 0 and time_ns > until:
            break
        result.append(row)
        if time_ns > until and own:
            break
    return result
