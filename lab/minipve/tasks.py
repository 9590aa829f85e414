"""Long operations as PVE's tasks: a UPID, a log file, a worker thread, a status that outlives the endpoint.

The log file is the only record: its last line (``TASK OK``, ``TASK ERROR: ..``, ``TASK WARNINGS: n``) is the
exit status. A file without one, whose worker is not ours, is a task that died with an earlier endpoint:
PVE's ``unexpected status``.
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

from minipve.errors import FAILURES, ApiError, parameter_error, text_of

KEPT = 500
_NAME_MAX = 255  # of a file
log = logging.getLogger("minipve")
_UPID = re.compile(
    r"UPID:(?P<node>[\w-]+):(?P<pid>[0-9A-F]{8}):(?P<pstart>[0-9A-F]{8,9}):(?P<starttime>[0-9A-F]{8})"
    r":(?P<type>[^:\s]+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)
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
        """Append to the log (``WARN: ..`` counts as a warning); a task that was asked to stop ends here."""
        self.checkpoint()
        self.warnings += text.startswith("WARN: ")
        self._write(text)

    def checkpoint(self) -> None:
        """End the task here if somebody asked for it."""
        if self.stop.is_set():
            raise InterruptedTaskError("received interrupt")

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up and end at once when the task is stopped."""
        self.stop.wait(seconds)
        self.checkpoint()

    def _write(self, text: str) -> None:
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(text.rstrip("\n") + "\n")

    def finish(self, error: str | None) -> None:
        """Write the last line, from which the exit status is read."""
        if error is not None:
            self._write("TASK ERROR: " + " ".join(error.strip().splitlines()))
        else:
            self._write(f"TASK WARNINGS: {self.warnings}" if self.warnings else "TASK OK")


Work = Callable[[Task], None]


def parse_upid(upid: str) -> dict[str, Any]:
    """The fields of a UPID; 400 with PVE's text when it is none."""
    match = _UPID.fullmatch(upid)
    if not match:
        raise parameter_error(upid="unable to parse worker upid")
    fields: dict[str, Any] = match.groupdict() | {
        k: int(match[k], 16) for k in ("pid", "pstart", "starttime")
    }
    user, bang, token = fields["user"].partition("!")
    return fields | {"upid": upid, "user": user} | ({"tokenid": token} if bang else {})


class Tasks:
    """All tasks of one node, running and finished; each begins with ``enter``, in a thread of its own."""

    def __init__(self, directory: Path, node: str, enter: Callable[[], None] = lambda: None) -> None:
        self.directory = directory
        self.node = node
        self._enter = enter
        self._running: dict[str, Task] = {}
        self._unwritten: dict[str, str] = {}
        """How tasks ended whose log could not take its last line (a full disk)."""
        self._lock = threading.Lock()
        self._latest = 0
        """When the latest task began, in ticks of a hundredth of a second since the node did."""
        directory.mkdir(parents=True, exist_ok=True)
        self._forget_old()

    def _forget_old(self) -> None:
        """Keep the newest logs only; what is not one of ours is left alone."""
        logs = [file for file in self.directory.iterdir() if _is_log(file)]
        for old in sorted(logs, key=lambda file: file.stat().st_mtime)[:-KEPT]:
            if old.name not in self._running:
                old.unlink()
        self._begun = 0

    def start(self, kind: str, name: str, authid: str, work: Work) -> str:
        """Run ``work`` in a thread of its own and return the UPID at once."""
        born: Future[Task] = Future()

        def worker() -> None:
            self._enter()
            try:
                task = self._begin(kind, name, authid)
            except OSError as failed:
                born.set_exception(failed)
                return
            born.set_result(task)
            self._run(task, work)

        threading.Thread(target=worker, name=f"{kind}:{name}", daemon=True).start()
        return born.result().upid

    def _begin(self, kind: str, name: str, authid: str) -> Task:
        thread = threading.get_native_id()
        ticks = int(Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[19])
        with self._lock:
            now = int(time.time())
            self._latest = ticks = max(ticks, self._latest + 1)  # tasks of one tick have an order too
            upid = f"UPID:{self.node}:{thread:08X}:{ticks:08X}:{now:08X}:{kind}:{name}:{authid}:"
            task = Task(upid, self.directory / upid)
            task.file.touch(mode=0o640)
            self._running[upid] = task
            self._begun += 1
            if self._begun >= KEPT:
                self._forget_old()
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

    def _known(self, upid: str) -> Path:
        parse_upid(upid)
        file = self.directory / upid
        if "/" in upid or len(upid) > _NAME_MAX or not file.is_file():
            raise parameter_error(upid="no such task")
        return file

    def status(self, upid: str) -> dict[str, Any]:
        """The task's fields with ``status`` and, once it is stopped, ``exitstatus``."""
        running = upid in self._running  # asked first: a task may end while its log is being read
        file = self._known(upid)
        state = {"status": "running"} if running else {"status": "stopped", "exitstatus": self._ended(file)}
        return parse_upid(upid) | state

    def log(self, upid: str, start: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Lines from ``start`` on (all of them when ``limit`` is 0) and how many there are in total."""
        lines = _lines(self._known(upid))
        chosen = lines[start : start + limit if limit else None]
        return [{"n": start + i + 1, "t": line} for i, line in enumerate(chosen)], len(lines)

    def interrupt(self, upid: str) -> None:
        """Ask a running task to stop; nothing happens to one that has ended."""
        self._known(upid)
        if task := self._running.get(upid):
            task.stop.set()

    def running(self, kind: str, name: str) -> list[str]:
        """UPIDs of running tasks of one kind on one object."""
        return [u for u in list(self._running) if (f := parse_upid(u))["type"] == kind and f["id"] == name]

    def overview(self) -> list[dict[str, Any]]:
        """All tasks, newest first; ``status`` is the exit status, or ``RUNNING`` without ``endtime``."""
        rows = []
        for file in self.directory.iterdir():
            if not _is_log(file):
                continue
            fields = parse_upid(file.name)
            if file.name in self._running:
                rows.append(fields | {"status": "RUNNING"})
            else:
                rows.append(fields | {"endtime": int(file.stat().st_mtime), "status": self._ended(file)})
        return sorted(rows, key=lambda row: (row["starttime"], row["pstart"]), reverse=True)

    def _ended(self, file: Path) -> str:
        return self._unwritten.get(file.name) or _said_last(file, file.stat().st_mtime_ns)

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
    """The lines of a log, whatever a crash or a disk has made of it."""
    return file.read_bytes().decode(errors="replace").removesuffix("\n").split("\n")


@lru_cache(maxsize=2 * KEPT)
def _said_last(file: Path, _changed_ns: int) -> str:
    """The exit status in a log; kept, because a list of hundreds of tasks must answer in milliseconds."""
    lines = _lines(file)
    match = _END.fullmatch(lines[-1]) if lines else None
    return next(filter(None, match.groups())) if match else "unexpected status"
