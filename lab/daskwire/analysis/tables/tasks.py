"""The tables tasks and gaps: the outcome of each task, and the idle time between tasks on each thread.

Only matching reports to tasks needs a loop over ops. Everything else is computed column by column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE, Array, Floats, Ints
from daskwire.base.schema import TABLES, Table, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import NOTES, Report, text

SENT_BY = "compute-task"
OUTCOMES = {
    "task-finished": "finished",
    "task-erred": "erred",
    "reschedule": "rescheduled",
    "steal-response": "stolen",
}


_NO_REPORT = Report(False, None, None, None, None, np.nan, np.nan, None, None)


@dataclass
class Matches:
    """Tasks in the order in which they were sent, and the last report about each, as lists of equal length.

    A task is identified by its connection and key: a worker receives and reports its tasks on one
    connection. The worker's name would be ambiguous, because a restarted worker has the same name.

    Attributes:
        flow: flow from the scheduler to the worker.
        key: the task's key.
        sent: message with its compute-task, NONE if that was not captured.
        ended: message that ended it, NONE while it is open.
        report: the worker's report.
        outcome: see the table.
        pending: flow and key -> tasks without a report.
    """

    flow: list[int] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    report: list[Report] = field(default_factory=list)
    outcome: list[str] = field(default_factory=list)
    pending: dict[tuple[int, str], list[int]] = field(default_factory=dict)

    def add(self, flow: int, key: str, message: int) -> None:
        """Add a task on the flow from a scheduler to a worker; ``message`` contains its compute-task."""
        self.pending.setdefault((flow, key), []).append(len(self.key))
        self.flow.append(flow)
        self.key.append(key)
        self.sent.append(message)
        self.ended.append(NONE)
        self.report.append(_NO_REPORT)
        self.outcome.append("open")

    def cancel(self, flow: int, keys: tuple[Any, ...], message: int) -> None:
        """Mark tasks that the scheduler cancels. A worker that had started one may still report it."""
        for key in keys:
            for task in self.pending.get((flow, key), ()):
                if self.outcome[task] == "open":
                    self.outcome[task], self.ended[task] = "cancelled", message

    def end(self, flow: int, key: str, message: int, op: str, report: Report) -> None:
        """Add a worker's report about a task on the flow from the scheduler to it."""
        if (flow, key) not in self.pending:
            self.add(flow, key, NONE)
        pending = self.pending.pop((flow, key))
        # if a task was cancelled and sent again, the worker reports only the second one
        task = next((task for task in pending if self.outcome[task] == "open"), pending[0])
        if len(pending) > 1:
            pending.remove(task)
            self.pending[flow, key] = pending
        self.report[task], self.ended[task], self.outcome[task] = report, message, OUTCOMES[op]


def tasks(capture: Capture) -> tuple[Table, Table]:
    """Build one row per compute-task, with the worker's last report about it; and the gaps between tasks."""
    matches = _match(capture)
    if not matches.key:
        return empty("tasks"), empty("gaps")
    table = _columns(capture, matches)
    return table, _gaps(capture, matches.flow, table)


def _match(capture: Capture) -> Matches:
    """Match the workers' reports to their tasks, op by op."""
    messages, matches = capture.messages, Matches()
    names, keys, notes = messages.op_name, messages.op_key, messages.op_note
    rows = messages.ops_named({SENT_BY, *NOTES})
    of_ops = messages.op_message[rows]
    for row, message, flow in zip(
        rows.tolist(), of_ops.tolist(), messages.flow[of_ops].tolist(), strict=True
    ):
        op, note = names[row], notes[row]
        if op == SENT_BY:
            matches.add(flow, text(keys[row]), message)
        elif isinstance(note, Report):
            if _is_report(capture, flow, op, note):
                matches.end(flow ^ 1, text(keys[row]), message, op, note)
        elif note is not None:
            matches.cancel(flow, note, message)
    return matches


def _is_report(capture: Capture, flow: int, op: str, report: Report) -> bool:
    """Return whether a worker sent this to its scheduler.

    A scheduler forwards task-erred to its clients.
    """
    if capture.from_scheduler[flow ^ 1]:
        return True
    return not capture.from_scheduler[flow] and (op != "task-erred" or report.from_worker)


def _columns(capture: Capture, matches: Matches) -> Table:
    """Build the columns of the table of tasks."""
    messages = capture.messages
    flow, sent, ended = np.array(matches.flow), np.array(matches.sent), np.array(matches.ended)
    reports = map(list, zip(*matches.report, strict=True))
    _, thread, start, stop, compute, transfer, disk, nbytes, kind = reports
    sent_s = np.where(sent == NONE, np.nan, messages.time_ns[sent] / 1e9)
    columns = {
        "key": matches.key,
        "worker": capture.sources[flow ^ 1].tolist(),
        "thread": thread,
        "sent_ns": _listed(messages.time_ns[sent], sent == NONE),
        "start_s": start,
        "stop_s": stop,
        "finished_ns": _listed(messages.end_ns[ended], ended == NONE),
        "wait_ms": _ms(_floats(start) - sent_s),
        "compute_ms": _ms(_floats(compute)),
        "transfer_ms": _ms(_floats(transfer)),
        "disk_ms": _ms(_floats(disk)),
        "report_ms": _ms(messages.end_ns[ended] / 1e9 - _floats(stop)),
        "nbytes": nbytes,
        "type": kind,
        "outcome": matches.outcome,
        "cluster": capture.clusters[flow].tolist(),
    }
    return {name: columns[name] for name in TABLES["tasks"]}


def _floats(values: Iterable[float | None]) -> Floats:
    """Convert numbers; None becomes NaN."""
    return np.array(values, float)


def _ms(seconds: Floats) -> list[float | None]:
    return _listed(np.round(seconds * 1e3, 3), np.isnan(seconds))


def _listed(values: Array, unknown: Array) -> list[Any]:
    """Convert an array to a list with None where the value is unknown."""
    objects = values.astype(object)
    objects[unknown] = None
    result: list[Any] = objects.tolist()
    return result


def _gaps(capture: Capture, flow: list[int], table: Table) -> Table:
    """Compute the idle time between consecutive tasks of each thread of each worker process.

    Args:
        capture: the capture.
        flow: per task, the flow from its scheduler to its worker.
        table: the table of tasks.
    """
    start, stop = _floats(table["start_s"]), _floats(table["stop_s"])
    run = np.flatnonzero(~np.isnan(start))
    rank = _thread_ranks(capture, [(flow[row] ^ 1, table["thread"][row]) for row in run.tolist()])
    order = np.lexsort((stop[run], start[run], rank))
    run, rank = run[order], rank[order]
    same = np.flatnonzero(rank[1:] == rank[:-1])
    before, after = run[same].tolist(), run[same + 1].tolist()
    return {
        "worker": _selected(table["worker"], after),
        "thread": _selected(table["thread"], after),
        "previous": _selected(table["key"], before),
        "key": _selected(table["key"], after),
        "stop_s": stop[before].tolist(),
        "gap_ms": np.round((start[after] - stop[before]) * 1e3, 3).tolist(),
        "cluster": _selected(table["cluster"], after),
    }


def _selected(column: list[Any], rows: list[int]) -> list[Any]:
    return [column[row] for row in rows]


def _thread_ranks(capture: Capture, threads: list[tuple[int, Any]]) -> Ints:
    """Rank threads by worker, thread, cluster and process. A thread is given by a flow from its worker."""
    owners = {
        (flow, thread): (capture.sources[flow], str(thread), capture.clusters[flow], capture.processes[flow])
        for flow, thread in set(threads)
    }
    rank = {owner: number for number, owner in enumerate(sorted(set(owners.values())))}
    ranks = {thread: rank[owner] for thread, owner in owners.items()}
    return np.array([ranks[thread] for thread in threads], np.int64)
