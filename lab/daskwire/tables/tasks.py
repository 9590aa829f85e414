"""Tables about tasks: what became of each, and the time between them on each thread."""

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
CANCELS = ("free-keys", "cancel-compute", "release-task")  # of today, of 2021 and 2022, of before
LATEST_S = 1e11  # a time in seconds since 1970 beyond which it is none


def tasks(capture: Capture) -> tuple[Table, Table]:
    """One row per compute-task, joined with what its worker said of it last; and the gaps between them."""
    book = _Book(capture)
    for message, op, said in capture.decoded("compute-task", *OUTCOMES, *CANCELS):
        if op == "compute-task":
            book.send(message, said)
        elif op in CANCELS:
            book.cancel(message, said)
        elif _ends(op, said) and _is_report(capture, int(capture.messages.flow[message]), op, said):
            book.end(message, op, said)
    return book.table, _gaps(book)


def _ends(op: str, said: dict[Any, Any]) -> bool:
    """A worker that answers a steal-request gives a task away only in some states."""
    return op != "steal-response" or said.get("state") in ("ready", "constrained", "waiting")


def _is_report(capture: Capture, flow: int, op: str, said: dict[Any, Any]) -> bool:
    """Whether a worker says this to its scheduler. A scheduler also tells its clients of a task-erred, then
    without the thread.
    """
    if capture.from_scheduler[flow ^ 1]:
        return True
    return not capture.from_scheduler[flow] and (op != "task-erred" or "thread" in said)


@dataclass
class _Book:
    """Which rows of the table still wait for what their worker says, by connection and key.

    A worker is told of its tasks, and reports them, on one connection: the name would not do, since a worker
    that its nanny started anew has the name of the one before. ``waiting`` knows a connection by its flow to
    the worker; ``process`` is the worker of each row.
    """

    capture: Capture
    table: Table = field(default_factory=lambda: empty("tasks"))
    process: list[tuple[str, int]] = field(default_factory=list)
    waiting: defaultdict[tuple[int, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def send(self, message: int, said: dict[Any, Any]) -> None:
        """The scheduler sends a task to a worker."""
        flow = int(self.capture.messages.flow[message])
        self._add(flow, text(said.get("key")), int(self.capture.messages.time_ns[message]))

    def _add(self, flow: int, key: str, sent_ns: int | None) -> None:
        """A row more, for a task on the flow from a scheduler to a worker."""
        self.waiting[flow, key].append(len(self.table["key"]))
        self.process.append(self.capture.processes[flow ^ 1])
        worker, cluster = str(self.capture.sources[flow ^ 1]), str(self.capture.clusters[flow])
        add_row(self.table, key, worker, None, sent_ns, *[None] * 10, "open", cluster)

    def cancel(self, message: int, said: dict[Any, Any]) -> None:
        """The scheduler wants tasks no more; a worker that had begun with one may still report it."""
        found, keys = self.capture.messages, said.get("keys", (said.get("key"),))
        for key in keys if isinstance(keys, tuple) else ():
            for row in self.waiting.get((int(found.flow[message]), text(key)), ()):
                if self.table["outcome"][row] == "open":
                    self.table["outcome"][row] = "cancelled"
                    self.table["finished_ns"][row] = int(found.end_ns[message])

    def end(self, message: int, op: str, said: dict[Any, Any]) -> None:
        """A worker reports what became of a task."""
        found, key = self.capture.messages, text(said.get("key"))
        flow = int(found.flow[message]) ^ 1
        rows = self.waiting[flow, key]
        if not rows:  # its compute-task was not captured
            self._add(flow, key, None)
        # of a task that was cancelled and sent again the first is silent
        row = next((r for r in rows if self.table["outcome"][r] == "open"), rows[0])
        rows.remove(row)
        _report(self.table, row, said, op, int(found.end_ns[message]))


def _report(table: Table, row: int, said: dict[Any, Any], op: str, end_ns: int) -> None:
    """Fill in what task-finished or task-erred says."""
    steps = list(_steps(said.get("startstops")))
    compute = [(a, b) for action, a, b in steps if action == "compute"]
    start, stop = (compute[0][0], compute[-1][1]) if compute else (None, None)
    sent = table["sent_ns"][row]
    thread, kind = said.get("thread"), said.get("typename")
    values: dict[str, Any] = {
        "thread": None if thread is None else name(thread),
        "start_s": start,
        "stop_s": stop,
        "finished_ns": end_ns,
        "wait_ms": (start - sent / 1e9) * 1e3 if start is not None and sent is not None else None,
        "compute_ms": sum(b - a for a, b in compute) * 1e3 if compute else None,
        "transfer_ms": sum(b - a for action, a, b in steps if action == "transfer") * 1e3,
        "disk_ms": sum(b - a for action, a, b in steps if action.startswith("disk")) * 1e3,
        "report_ms": (end_ns / 1e9 - stop) * 1e3 if stop is not None else None,
        "nbytes": number(said.get("nbytes")),
        "type": None if kind is None else text(kind),
        "outcome": OUTCOMES[op],
    }
    for column, value in values.items():
        table[column][row] = round(value, 3) if column.endswith("_ms") and value is not None else value


def _steps(startstops: Any) -> Iterator[tuple[str, float, float]]:
    """Action, start, stop: dicts today, tuples of three in G1."""
    for step in startstops if isinstance(startstops, tuple) else ():
        if isinstance(step, dict):
            step = (step.get("action"), step.get("start"), step.get("stop"))
        if not isinstance(step, tuple) or len(step) != 3:
            continue
        start, stop = number(step[1]), number(step[2])
        if start is not None and stop is not None and 0 <= start < LATEST_S and 0 <= stop < LATEST_S:
            yield text(step[0]), float(start), float(stop)


def _gaps(book: _Book) -> Table:
    """Idle time between successive tasks of each worker thread; threads of two processes are two."""
    done, table = book.table, empty("gaps")
    threads: defaultdict[tuple[Any, ...], list[tuple[float, float, str]]] = defaultdict(list)
    for row, start in enumerate(done["start_s"]):
        if start is not None:
            thread = (done["worker"][row], done["thread"][row], done["cluster"][row], book.process[row])
            threads[thread].append((start, done["stop_s"][row], done["key"][row]))
    ordered = sorted(threads.items(), key=lambda item: (item[0][0], str(item[0][1]), *item[0][2:]))
    for (worker, thread, cluster, _), runs in ordered:
        runs.sort()
        for (_, stop, before), (start, _, after) in pairwise(runs):
            gap_ms = round((start - stop) * 1e3, 3)
            add_row(table, worker, thread, before, after, stop, gap_ms, cluster)
    return table
