"""Long operations as PVE's tasks: each has a UPID, a worker thread and a log file.

The log file is the only record, and survives the endpoint. Its last line (``TASK OK``, ``TASK ERROR: ..`` or
``TASK WARNINGS: n``) is the exit status. A log without such a line belongs to a running task, or to one that
died with an earlier endpoint and has PVE's ``unexpected status``.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from minipve.base.errors import FAILURES, ApiError, parameter_error, text_of

MAX_LOGS = 500
_NAME_MAX = 255  # characters in the name of a file
log = logging.getLogger("minipve")
_UPID = re.compile(
    r"UPID:(?P<node>[\w-]+):(?P<pid>[0-9A-F]{8}):(?P<pstart>[0-9A-F]{8,9}):(?P<starttime>[0-9A-F]{8})"
    r":(?P<type>[^:\s]+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)
_WARNING = "WARN: "
_WAIT_S = 0.1  # between two looks at a task for which another one waits
_END = re.compile(r"TASK (?:(OK)|ERROR: (.+)|(WARNINGS: \d+))")


class InterruptedTaskError(Exception):
    """Raised inside a task that was asked to stop."""


@dataclass
class Task:
    """A running task as its worker sees it."""

    upid: str
    file: Path
    warnings: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def log(self, text: str) -> None:
        """Append to the log. ``WARN: ..`` counts as a warning. Ends the task if it was asked to stop."""
        self.checkpoint()
        self.warnings += text.startswith(_WARNING)
        self._write(text)

    def checkpoint(self) -> None:
        """End the task here if it was asked to stop."""
        if self.stop.is_set():
            raise InterruptedTaskError("received interrupt")

    def wait(self, seconds: float) -> None:
        """Sleep, but end at once when the task is asked to stop."""
        self.stop.wait(seconds)
        self.checkpoint()

    def _write(self, text: str) -> None:
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(text.rstrip("\n") + "\n")

    def finish(self, error: str | None) -> None:
        """Write the last line, which contains the exit status."""
        if error is not None:
            self._write("TASK ERROR: " + " ".join(error.strip().splitlines()))
        else:
            self._write(f"TASK WARNINGS: {self.warnings}" if self.warnings else "TASK OK")


Work = Callable[[Task], None]


def parse_upid(upid: str) -> dict[str, Any]:
    """Parse a UPID. Raises 400 with PVE's text for an invalid one."""
    match = _UPID.fullmatch(upid)
    if not match:
        raise parameter_error(upid="unable to parse worker upid")
    fields: dict[str, Any] = match.groupdict() | {
        k: int(match[k], 16) for k in ("pid", "pstart", "starttime")
    }
    user, bang, token = fields["user"].partition("!")
    return fields | {"upid": upid, "user": user} | ({"tokenid": token} if bang else {})


class Tasks:
    """All tasks of a node, running and finished. Each runs in its own thread, which calls ``enter`` first."""

    def __init__(self, directory: Path, node: str, enter: Callable[[], None] = lambda: None) -> None:
        self.directory = directory
        self.node = node
        self._enter = enter
        self._running: dict[str, Task] = {}
        self._unwritten: dict[str, str] = {}
        """Exit status of tasks whose last line could not be written because the disk was full."""
        self._lock = threading.Lock()
        self._latest = 0
        """Start time of the latest task in clock ticks since boot."""
        directory.mkdir(parents=True, exist_ok=True)
        self._remove_old_logs()

    def _remove_old_logs(self) -> None:
        """Keep only the newest logs. Other files are not touched."""
        logs = [file for file in self.directory.iterdir() if _is_log(file)]
        for old in sorted(logs, key=lambda file: file.stat().st_mtime)[:-MAX_LOGS]:
            if old.name not in self._running:
                old.unlink()
        self._starts = 0

    def start(self, kind: str, name: str, authid: str, work: Work) -> str:
        """Run ``work`` in its own thread, and return the UPID at once."""
        started: Future[Task] = Future()

        def worker() -> None:
            self._enter()
            try:
                task = self._begin(kind, name, authid)
            except OSError as failed:
                started.set_exception(failed)
                return
            started.set_result(task)
            self._run(task, work)

        threading.Thread(target=worker, name=f"{kind}:{name}", daemon=True).start()
        return started.result().upid

    def _begin(self, kind: str, name: str, authid: str) -> Task:
        thread = threading.get_native_id()
        ticks = int(Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[19])
        with self._lock:
            now = int(time.time())
            self._latest = ticks = max(ticks, self._latest + 1)  # gives tasks of the same tick an order
            upid = f"UPID:{self.node}:{thread:08X}:{ticks:08X}:{now:08X}:{kind}:{name}:{authid}:"
            task = Task(upid, self.directory / upid)
            task.file.touch(mode=0o640)
            self._running[upid] = task
            self._starts += 1
            if self._starts >= MAX_LOGS:
                self._remove_old_logs()
        return task

    def _run(self, task: Task, work: Work) -> None:
        error: str | None = "worker died"
        try:
            work(task)
            error = None
        except ApiError as refused:
            error = refused.detail
        except (InterruptedTaskError, *FAILURES) as failed:
            error = text_of(failed)
        finally:
            try:
                task.finish(error)
            except OSError as full:
                log.error("%s: %s; its log cannot be written: %s", task.upid, error or "OK", full.strerror)
                self._unwritten[task.upid] = " ".join((error or text_of(full)).split())
            finally:
                with self._lock:
                    del self._running[task.upid]

    def _log_file(self, upid: str) -> Path:
        parse_upid(upid)
        file = self.directory / upid
        if "/" in upid or len(upid) > _NAME_MAX or not file.is_file():
            raise parameter_error(upid="no such task")
        return file

    def status(self, upid: str) -> dict[str, Any]:
        """Return the task's fields with ``status`` and, for a finished one, ``exitstatus``."""
        running = upid in self._running  # check first: it may finish while we read its log
        file = self._log_file(upid)
        if running:
            return parse_upid(upid) | {"status": "running"}
        return parse_upid(upid) | {"status": "stopped", "exitstatus": self._exit_status(file)}

    def log(self, upid: str, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return ``limit`` lines from ``start`` (0: all lines), and the total number of lines."""
        lines = _lines(self._log_file(upid))
        chosen = lines[start : start + limit if limit else None]
        return [{"n": start + i + 1, "t": line} for i, line in enumerate(chosen)], len(lines)

    def wait_for(self, upid: str, waiting: Task) -> str:
        """Let a task wait for another one, and return the exit status of that."""
        while (status := self.status(upid))["status"] == "running":
            waiting.wait(_WAIT_S)
        exit_status: str = status["exitstatus"]
        return exit_status

    def warnings_of(self, upid: str) -> list[str]:
        """Return the warnings in a task's log."""
        return [row["t"] for row in self.log(upid, 0, 0)[0] if row["t"].startswith(_WARNING)]

    def interrupt(self, upid: str) -> None:
        """Ask a running task to stop. A finished one stays as it is."""
        self._log_file(upid)
        if task := self._running.get(upid):
            task.stop.set()

    def running(self, kind: str, name: str) -> list[str]:
        """Return the UPIDs of running tasks of a type for an object."""
        return [u for u in list(self._running) if (f := parse_upid(u))["type"] == kind and f["id"] == name]

    def overview(self) -> list[dict[str, Any]]:
        """Return all tasks, newest first. ``status`` is the exit status, or ``RUNNING``."""
        rows = []
        for file in self.directory.iterdir():
            if not _is_log(file):
                continue
            fields = parse_upid(file.name)
            if file.name in self._running:
                rows.append(fields | {"status": "RUNNING"})
            else:
                end = {"endtime": int(file.stat().st_mtime), "status": self._exit_status(file)}
                rows.append(fields | end)
        return sorted(rows, key=lambda row: (row["starttime"], row["pstart"]), reverse=True)

    def _exit_status(self, file: Path) -> str:
        return self._unwritten.get(file.name) or _last_line_status(file, file.stat().st_mtime_ns)

    def settle(self, timeout_s: float) -> None:
        """Stop all running tasks and wait for them."""
        for task in list(self._running.values()):
            task.stop.set()
        deadline = time.monotonic() + timeout_s
        while self._running and time.monotonic() < deadline:
            time.sleep(0.02)


def _is_log(file: Path) -> bool:
    return _UPID.fullmatch(file.name) is not None and file.is_file()


def _lines(file: Path) -> list[str]:
    """Return the lines of a log, even of a damaged one."""
    return file.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")


@lru_cache(maxsize=2 * MAX_LOGS)
def _last_line_status(file: Path, _changed_ns: int) -> str:
    """Return the exit status in a log. Cached, so that a list of hundreds of tasks takes milliseconds."""
    lines = _lines(file)
    match = _END.fullmatch(lines[-1]) if lines else None
    return next(filter(None, match.groups())) if match else "unexpected status"
