"""The tables tasks and gaps: the outcome of each task, and the idle time between tasks on each thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from daskwire.capture import Capture
from daskwire.dask.messagepack import name, number, text
from daskwire.schema import Table, add_row, empty

OUTCOMES = {
    "task-finished": "finished",
    "task-erred": "erred",
    "reschedule": "rescheduled",
    "steal-response": "stolen",
}
CANCELS = ("free-keys", "cancel-compute", "release-task")  # since 2022, in 2021 and 2022, before 2021
LATEST_S = 1e11  # seconds since 1970; larger values are not times


def tasks(capture: Capture) -> tuple[Table, Table]:
    """Build one row per compute-task, with the worker's last report about it; and the gaps between tasks."""
    builder = _Builder(capture)
    for message, op, fields in capture.decoded("compute-task", *OUTCOMES, *CANCELS):
        if op == "compute-task":
            builder.send(message, fields)
        elif op in CANCELS:
            builder.cancel(message, fields)
        elif _is_final(op, fields) and _is_report(capture, int(capture.messages.flow[message]), op, fields):
            builder.end(message, op, fields)
    return builder.table, _gaps(builder)


def _is_final(op: str, fields: dict[Any, Any]) -> bool:
    """Return whether an op ends a task on its worker. Stealing succeeds only in some states."""
    return op != "steal-response" or fields.get("state") in ("ready", "constrained", "waiting")


def _is_report(capture: Capture, flow: int, op: str, fields: dict[Any, Any]) -> bool:
    """Return whether a worker sent this to its scheduler.

    A scheduler forwards task-erred to its clients, without the thread.
    """
    if capture.from_scheduler[flow ^ 1]:
        return True
    return not capture.from_scheduler[flow] and (op != "task-erred" or "thread" in fields)


@dataclass
class _Builder:
    """The table of tasks while it is built.

    A task is identified by its connection and key: a worker receives and reports its tasks on one
    connection. The worker's name would be ambiguous, because a restarted worker has the same name.

    Attributes:
        capture: the capture.
        table: the rows so far.
        process: (per row) process of the worker.
        open_rows: flow to the worker and key -> rows without a report.
    """

    capture: Capture
    table: Table = field(default_factory=lambda: empty("tasks"))
    process: list[tuple[str, int]] = field(default_factory=list)
    open_rows: defaultdict[tuple[int, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def send(self, message: int, fields: dict[Any, Any]) -> None:
        """Add a task that the scheduler sends to a worker."""
        flow = int(self.capture.messages.flow[message])
        self._add(flow, text(fields.get("key")), int(self.capture.messages.time_ns[message]))

    def _add(self, flow: int, key: str, sent_ns: int | None) -> None:
        """Append a row for a task on the flow from a scheduler to a worker."""
        self.open_rows[flow, key].append(len(self.table["key"]))
        self.process.append(self.capture.processes[flow ^ 1])
        worker, cluster = str(self.capture.sources[flow ^ 1]), str(self.capture.clusters[flow])
        add_row(self.table, key, worker, None, sent_ns, *[None] * 10, "open", cluster)

    def cancel(self, message: int, fields: dict[Any, Any]) -> None:
        """Mark tasks that the scheduler cancels. A worker that had started one may still report it."""
        messages, keys = self.capture.messages, fields.get("keys", (fields.get("key"),))
        for key in keys if isinstance(keys, tuple) else ():
            for row in self.open_rows.get((int(messages.flow[message]), text(key)), ()):
                if self.table["outcome"][row] == "open":
                    self.table["outcome"][row] = "cancelled"
                    self.table["finished_ns"][row] = int(messages.end_ns[message])

    def end(self, message: int, op: str, fields: dict[Any, Any]) -> None:
        """Fill in a worker's report about a task."""
        messages, key = self.capture.messages, text(fields.get("key"))
        flow = int(messages.flow[message]) ^ 1
        rows = self.open_rows[flow, key]
        if not rows:  # its compute-task was not captured
            self._add(flow, key, None)
        # if a task was cancelled and sent again, the worker reports only the second one
        row = next((r for r in rows if self.table["outcome"][r] == "open"), rows[0])
        rows.remove(row)
        _report(self.table, row, fields, op, int(messages.end_ns[message]))


def _report(table: Table, row: int, fields: dict[Any, Any], op: str, end_ns: int) -> None:
    """Fill in the fields of task-finished or task-erred."""
    steps = list(_steps(fields.get("startstops")))
    compute = [(a, b) for action, a, b in steps if action == "compute"]
    start, stop = (compute[0][0], compute[-1][1]) if compute else (None, None)
    sent_ns = table["sent_ns"][row]
    thread, kind = fields.get("thread"), fields.get("typename")
    values: dict[str, Any] = {
        "thread": None if thread is None else name(thread),
        "start_s": start,
        "stop_s": stop,
        "finished_ns": end_ns,
        "wait_ms": (start - sent_ns / 1e9) * 1e3 if start is not None and sent_ns is not None else None,
        "compute_ms": sum(b - a for a, b in compute) * 1e3 if compute else None,
        "transfer_ms": sum(b - a for action, a, b in steps if action == "transfer") * 1e3,
        "disk_ms": sum(b - a for action, a, b in steps if action.startswith("disk")) * 1e3,
        "report_ms": (end_ns / 1e9 - stop) * 1e3 if stop is not None else None,
        "nbytes": number(fields.get("nbytes")),
        "type": None if kind is None else text(kind),
        "outcome": OUTCOMES[op],
    }
    for column, value in values.items():
        table[column][row] = round(value, 3) if column.endswith("_ms") and value is not None else value


def _steps(startstops: Any) -> Iterator[tuple[str, float, float]]:
    """Yield action, start and stop (seconds since 1970) of each step: a tuple in G1, a dict since G2."""
    for step in startstops if isinstance(startstops, tuple) else ():
        if isinstance(step, dict):
            step = (step.get("action"), step.get("start"), step.get("stop"))
        if not isinstance(step, tuple) or len(step) != 3:
            continue
        start, stop = number(step[1]), number(step[2])
        if start is not None and stop is not None and 0 <= start < LATEST_S and 0 <= stop < LATEST_S:
            yield text(step[0]), float(start), float(stop)


def _gaps(builder: _Builder) -> Table:
    """Compute the idle time between consecutive tasks of each thread of each worker process."""
    rows, table = builder.table, empty("gaps")
    threads: defaultdict[tuple[Any, ...], list[tuple[float, float, str]]] = defaultdict(list)
    for row, start in enumerate(rows["start_s"]):
        if start is not None:
            thread = (rows["worker"][row], rows["thread"][row], rows["cluster"][row], builder.process[row])
            threads[thread].append((start, rows["stop_s"][row], rows["key"][row]))
    ordered = sorted(threads.items(), key=lambda item: (item[0][0], str(item[0][1]), *item[0][2:]))
    for (worker, thread, cluster, _), runs in ordered:
        runs.sort()
        for (_, stop, before), (start, _, after) in pairwise(runs):
            gap_ms = round((start - stop) * 1e3, 3)
            add_row(table, worker, thread, before, after, stop, gap_ms, cluster)
    return table
