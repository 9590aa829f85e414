"""Tables about tasks: what became of each, and the time between them on each thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from lab.wire.capture import Capture
from lab.wire.schema import Table, add_row, empty

OUTCOMES = {
    "task-finished": "finished",
    "task-erred": "erred",
    "reschedule": "rescheduled",
    "steal-response": "stolen",
}


def tasks(capture: Capture) -> Table:
    """One row per compute-task, joined with what its worker said of it last."""
    found, table = capture.messages, empty("tasks")
    open_tasks: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for message, op, said in capture.decoded("compute-task", *OUTCOMES):
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
