"""What the table of tasks needs of an op, a few values each. It is kept when a message is first decoded.

Decoding these messages again would cost as much as all of the first pass, since most messages of a cluster
with small tasks are reports about tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, NamedTuple

from daskwire.decoder.dask.framing.messagepack import name, number, text

LATEST_S = 1e11  # seconds since 1970; larger values are not times


class Report(NamedTuple):
    """A worker's report that it is done with a task.

    Attributes:
        from_worker: only a worker sends these fields; a scheduler forwards task-erred without them.
        thread: identifier of the thread, None without.
        start_s: when the task began to compute, seconds since 1970 by the worker's clock; None without.
        stop_s: when it stopped.
        compute_s: time computing; None without.
        transfer_s: time transferring inputs.
        disk_s: time reading from and writing to disk.
        nbytes: size of the result in memory.
        type: type of the result.
    """

    from_worker: bool
    thread: Any
    start_s: float | None
    stop_s: float | None
    compute_s: float | None
    transfer_s: float
    disk_s: float
    nbytes: int | float | None
    type: str | None


Note = Report | tuple[Any, ...]


def _report(fields: dict[Any, Any]) -> Report:
    start = stop = compute = None
    transfer = disk = 0.0
    action: Any
    begin: Any
    end: Any
    startstops = fields.get("startstops")
    for step in startstops if type(startstops) is tuple else ():
        if type(step) is dict:  # since G2
            action, begin, end = step.get("action"), step.get("start"), step.get("stop")
        elif type(step) is tuple and len(step) == 3:
            action, begin, end = step
        else:
            continue
        if not (_is_time(begin) and _is_time(end)):
            continue
        if action == "compute":
            start = float(begin) if start is None else start
            stop = float(end)
            compute = (compute or 0.0) + (end - begin)
        elif action == "transfer":
            transfer += end - begin
        elif text(action).startswith("disk"):
            disk += end - begin
    thread, kind = fields.get("thread"), fields.get("typename")
    return Report(
        "thread" in fields,
        None if thread is None else name(thread),
        start,
        stop,
        compute,
        transfer,
        disk,
        number(fields.get("nbytes")),
        None if kind is None else intern(text(kind)),
    )


def _is_time(value: Any) -> bool:
    """Return whether a value is a time in seconds since 1970. Infinity and NaN are none."""
    return (type(value) is float or type(value) is int) and 0 <= value < LATEST_S


def _steal_response(fields: dict[Any, Any]) -> Report | None:
    """Stealing succeeds, and ends the task on its worker, only in some states."""
    return _report(fields) if fields.get("state") in ("ready", "constrained", "waiting") else None


def _cancelled(fields: dict[Any, Any]) -> tuple[Any, ...]:
    keys = fields.get("keys", (fields.get("key"),))
    return tuple(map(text, keys)) if isinstance(keys, tuple) else ()


NOTES: dict[str, Callable[[dict[Any, Any]], Note | None]] = {
    "task-finished": _report,
    "task-erred": _report,
    "reschedule": _report,
    "steal-response": _steal_response,
    "free-keys": _cancelled,  # since 2022
    "cancel-compute": _cancelled,  # in 2021 and 2022
    "release-task": _cancelled,  # before 2021
}
"""Op -> what is kept of its fields: a report, or the keys of cancelled tasks."""
