"""The tables tasks and gaps: the outcome of each task, and the idle time between tasks on each thread."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from daskwire.capture import Capture
from daskwire.dask.messagepack import text
from daskwire.dask.reports import Report
from daskwire.schema import TABLES, Table, add_row, empty

OUTCOMES = {
    "task-finished": "finished",
    "task-erred": "erred",
    "reschedule": "rescheduled",
    "steal-response": "stolen",
}
Row = list[Any]
_COLUMNS = list(TABLES["tasks"])
SENT, OUTCOME, FINISHED = map(_COLUMNS.index, ("sent_ns", "outcome", "finished_ns"))


def tasks(capture: Capture) -> tuple[Table, Table]:
    """Build one row per compute-task, with the worker's last report about it; and the gaps between tasks."""
    builder, messages = _Builder(capture), capture.messages
    flows = messages.flow[messages.op_message].tolist()
    ops = zip(
        flows, messages.op_message.tolist(), messages.op_name, messages.op_key, messages.op_note, strict=True
    )
    for flow, message, op, key, note in ops:
        if op == "compute-task":
            builder.add(flow, text(key), message)
        elif isinstance(note, Report):
            if _is_report(capture, flow, op, note):
                builder.end(flow ^ 1, text(key), message, op, note)
        elif note is not None:
            builder.cancel(flow, note, message)
    return builder.table(), _gaps(builder)


def _is_report(capture: Capture, flow: int, op: str, report: Report) -> bool:
    """Return whether a worker sent this to its scheduler.

    A scheduler forwards task-erred to its clients.
    """
    if capture.from_scheduler[flow ^ 1]:
        return True
    return not capture.from_scheduler[flow] and (op != "task-erred" or report.from_worker)


@dataclass
class _Builder:
    """The table of tasks while it is built.

    A task is identified by its connection and key: a worker receives and reports its tasks on one
    connection. The worker's name would be ambiguous, because a restarted worker has the same name.

    Attributes:
        capture: the capture.
        rows: the rows so far, in the order of the table's columns.
        process: (per row) process of the worker.
        open_rows: flow to the worker and key -> rows without a report.
    """

    capture: Capture
    rows: list[Row] = field(default_factory=list)
    process: list[tuple[str, int]] = field(default_factory=list)
    open_rows: defaultdict[tuple[int, str], list[Row]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        """Convert what every row needs to lists, which are faster than arrays."""
        self.sent_ns = self.capture.messages.time_ns.tolist()
        self.end_ns = self.capture.messages.end_ns.tolist()
        self.workers = [str(name) for name in self.capture.sources]
        self.clusters = [str(name) for name in self.capture.clusters]

    def add(self, flow: int, key: str, message: int | None) -> None:
        """Add a task on the flow from a scheduler to a worker; ``message`` is its compute-task."""
        sent_ns = None if message is None else self.sent_ns[message]
        row = [key, self.workers[flow ^ 1], None, sent_ns, *[None] * 10, "open", self.clusters[flow]]
        self.open_rows[flow, key].append(row)
        self.rows.append(row)
        self.process.append(self.capture.processes[flow ^ 1])

    def cancel(self, flow: int, keys: tuple[Any, ...], message: int) -> None:
        """Mark tasks that the scheduler cancels. A worker that had started one may still report it."""
        for key in keys:
            for row in self.open_rows.get((flow, key), ()):
                if row[OUTCOME] == "open":
                    row[OUTCOME] = "cancelled"
                    row[FINISHED] = self.end_ns[message]

    def end(self, flow: int, key: str, message: int, op: str, report: Report) -> None:
        """Fill in a worker's report about a task on the flow from the scheduler to it."""
        rows = self.open_rows[flow, key]
        if not rows:  # its compute-task was not captured
            self.add(flow, key, None)
        # if a task was cancelled and sent again, the worker reports only the second one
        index = next((i for i, row in enumerate(rows) if row[OUTCOME] == "open"), 0)
        _fill(rows.pop(index), report, op, self.end_ns[message])

    def table(self) -> Table:
        if not self.rows:
            return empty("tasks")
        return dict(zip(TABLES["tasks"], map(list, zip(*self.rows, strict=True)), strict=True))


def _fill(row: Row, report: Report, op: str, end_ns: int) -> None:
    """Fill in the fields of a report, from ``thread`` to ``outcome``."""
    start, stop, sent_ns = report.start_s, report.stop_s, row[SENT]
    waited = start is not None and sent_ns is not None
    row[2:15] = (
        report.thread,
        sent_ns,
        start,
        stop,
        end_ns,
        round((start - sent_ns / 1e9) * 1e3, 3) if waited else None,
        round(report.compute_s * 1e3, 3) if report.compute_s is not None else None,
        round(report.transfer_s * 1e3, 3) if report.transfer_s else 0.0,
        round(report.disk_s * 1e3, 3) if report.disk_s else 0.0,
        round((end_ns / 1e9 - stop) * 1e3, 3) if stop is not None else None,
        report.nbytes,
        report.type,
        OUTCOMES[op],
    )


def _gaps(builder: _Builder) -> Table:
    """Compute the idle time between consecutive tasks of each thread of each worker process."""
    table = empty("gaps")
    threads: defaultdict[tuple[Any, ...], list[tuple[float, float, str]]] = defaultdict(list)
    for row, process in zip(builder.rows, builder.process, strict=True):
        key, worker, thread, _, start, stop, *_, cluster = row
        if start is not None:
            threads[worker, thread, cluster, process].append((start, stop, key))
    ordered = sorted(threads.items(), key=lambda item: (item[0][0], str(item[0][1]), *item[0][2:]))
    for (worker, thread, cluster, _), runs in ordered:
        runs.sort()
        for (_, stop, before), (start, _, after) in pairwise(runs):
            gap_ms = round((start - stop) * 1e3, 3)
            add_row(table, worker, thread, before, after, stop, gap_ms, cluster)
    return table
