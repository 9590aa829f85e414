"""The output of a playbook: one line per task, and an estimate of the time left.

The estimate is what the same tasks took in the last run, which the cache folder keeps; a first run has none.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.plugins.callback import CallbackBase
from dasklab.model.forms.failure_text import common_text

DOCUMENTATION = """
name: dasklab
type: stdout
short_description: one line a task, with progress and an estimate of the time left
version_added: "0.1"
description:
  - Prints a line for each task when it ends, with the number of hosts by state. A failure is printed once
    for all hosts that share it.
  - The estimate is what the same tasks took the last time.
extends_documentation_fragment: [default_callback]
"""


LAST_LINES = 12  # of a failed command's output
MAX_NAMES = 8  # of hosts that share a failure
SSH_CLOSED = "Shared connection to "  # begins a line that ssh adds to each command's output
UNSUPPORTED = "unsupported: "  # begins the guest program's message if the host cannot do something
CHECKS = {"assert", "ansible.builtin.assert", "ansible.builtin.validate_argument_spec"}
"""Actions that are printed only if they fail."""
NO_MESSAGE = "non-zero return code"  # Ansible's message if the command itself says more


def history_file() -> Path:
    """Return the file with the durations of the last run."""
    cache = os.environ.get("DASKLAB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache) if cache else Path(base).expanduser() / "dasklab") / "durations.json"


@dataclass
class Failure:
    """A reason and the hosts that failed for it."""

    lines: list[str]
    hosts: list[str] = field(default_factory=list)

    def host_names(self) -> str:
        """Return the names of the hosts, at most MAX_NAMES of them."""
        names = sorted(self.hosts, key=lambda name: re.sub(r"\d+", lambda number: number[0].zfill(6), name))
        more = len(names) - MAX_NAMES
        return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


class Past:
    """The tasks of a playbook's last run, and how far this run is among them.

    A title may come several times: its nth start is the nth one of the last run. The place only moves on, so
    the time left never rises.
    """

    def __init__(self, tasks: list[tuple[str, float]]) -> None:
        self._tasks = tasks
        self._started: Counter[str] = Counter()
        self._place = 0

    def advance_to(self, title: str) -> None:
        """Move to the next task with this title. One that the last run did not have changes nothing."""
        places = [place for place, (past, _) in enumerate(self._tasks) if past == title]
        if self._started[title] < len(places):
            self._place = max(self._place, places[self._started[title]] + 1)
        self._started[title] += 1

    def left_s(self) -> float:
        """Return how long the tasks after the present one took in the last run."""
        return sum(seconds for _, seconds in self._tasks[self._place :])


def reason(result: dict[str, Any]) -> list[str]:
    """Return why a task failed: the module's message and the last lines of its command. Pure.

    Of a loop, these are the reasons of the items that failed.
    """
    if items := [item for item in result.get("results") or [] if item.get("failed")]:
        return list(dict.fromkeys(line for item in items for line in reason(item)))
    message = str(result.get("msg") or "").strip()
    stderr, stdout = (str(result.get(key) or "").splitlines()[-LAST_LINES:] for key in ("stderr", "stdout"))
    stderr = [line for line in stderr if not line.startswith(SSH_CLOSED)]
    lines = [line.rstrip() for line in ([] if message == NO_MESSAGE else message.splitlines()) + stderr]
    return list(dict.fromkeys(filter(None, lines))) or stdout or [message or "no reason given"]


def repeats(line: str, printed: list[str]) -> bool:
    """Return whether a line only repeats one that was printed, perhaps after a prefix. Pure."""
    return any(
        line.removeprefix(UNSUPPORTED) == earlier or line.endswith(f": {earlier}") for earlier in printed
    )


class Stop:
    """Ansible's handler of a signal, but for three moments in which it would end with a traceback.

    It asks each worker whether it is alive, and Python refuses that for a worker that was closed, and in a
    worker that was just forked and still has the handler. What it raises is lost while Python runs the hooks
    of a fork.
    """

    def __init__(self, manager: Any, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._manager, self._handler, self._pid = manager, handler, os.getpid()
        self._is_forking, self._number = False, 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop as Ansible does; a forked worker just ends."""
        if os.getpid() != self._pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self._is_forking:
            self._number = number
            return
        self._manager._workers[:] = [
            None if worker is None or worker._closed else worker for worker in self._manager._workers
        ]
        self._handler(number, frame)

    def waits_for(self, start: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what starts a worker in such a way that a signal waits until it is forked."""

        def start_worker(worker: Any) -> None:
            self._is_forking = True
            start(worker)
            self._is_forking = False
            if self._number:
                os.kill(os.getpid(), self._number)

        return start_worker


def stop_without_a_traceback() -> None:
    """Replace Ansible's handlers, and how it starts its workers."""
    handler = signal.getsignal(signal.SIGINT)
    manager = getattr(handler, "__self__", None)
    if callable(handler) and isinstance(manager, TaskQueueManager):
        stop = Stop(manager, handler)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        WorkerProcess.start = stop.waits_for(WorkerProcess.start)


def warn_once_of_log_errors(warn: Callable[[str], None]) -> None:
    """Call ``warn`` when Ansible's log cannot be written for the first time, as on a full disk.

    Python would print a traceback of some 30 lines for each line of the log.
    """
    for handler in logging.root.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handleError = partial(_warn_once, handler, warn)  # type: ignore[method-assign]


def _warn_once(handler: logging.FileHandler, warn: Callable[[str], None], _record: logging.LogRecord) -> None:
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    error = sys.exc_info()[1]
    reason = error.strerror if isinstance(error, OSError) else error
    warn(f"the log is incomplete: {handler.baseFilename}: {reason}")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Prints a line per task when it ends, and the reasons of failures."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "dasklab"

    def __init__(self) -> None:
        super().__init__()
        self._heading = self._title = ""
        self._task_start_s = self._playbook_start_s = time.monotonic()
        self._states: Counter[str] = Counter()
        self._done: list[tuple[str, float]] = []
        self._past = Past([])
        self._playbook = ""
        self._messages: list[str] = []
        self._failures: dict[str, Failure] = {}  # of the task, by their common text
        self._explained: list[str] = []  # the lines about failures that were printed
        self._failed = self._is_check = False
        warn_once_of_log_errors(self._display.warning)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Load the durations of this playbook's last run."""
        stop_without_a_traceback()
        self._playbook = Path(playbook._file_name).name
        self._past = Past([(str(t), float(s)) for t, s in _load().get(self._playbook, [])])

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the play's name as a heading for its first task. A play without hosts gets no heading."""
        self._finish()
        self._heading = play.get_name().strip()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Start a line."""
        self._finish()
        self._title = task.get_name().strip()
        self._task_start_s = time.monotonic()
        self._past.advance_to(self._title)
        self._is_check = task.action in CHECKS
        if sys.stdout.isatty() and not self._is_check:
            self._print_heading()
            line = f"  ....  {self._title}{self._left()}"
            sys.stdout.write(f"{line[: shutil.get_terminal_size().columns - 1]}\r")
            sys.stdout.flush()

    v2_playbook_on_handler_task_start = v2_playbook_on_cleanup_task_start = lambda self, task: (
        self.v2_playbook_on_task_start(task, False)
    )

    def v2_runner_on_ok(self, result: Any) -> None:
        """Count the host. A check is only reported if it fails."""
        if self._is_check:
            return
        self._states["changed" if result._result.get("changed") else "ok"] += 1
        self._handle_warnings(result._result)
        if result._task.action in {"debug", "ansible.builtin.debug"}:
            lines = str(result._result.get("msg", "")).rstrip().splitlines()
            self._messages += [f"    {line}" for line in lines]

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Count the host."""
        self._states["skipped"] += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep the reason until the task ends on all hosts, because several may share it."""
        self._states["failed"] += 1
        self._keep_failure(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep the reason, as above."""
        self._states["unreachable"] += 1
        self._keep_failure(result)

    def v2_on_file_diff(self, result: Any) -> None:
        """Print differences if ``--diff`` is given."""
        diff = result._result.get("diff")
        if diff and (result._result.get("changed") or "prepared" in diff):
            self._display.display(self._get_diff(diff))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print one line for the whole run and remember how long each task took."""
        self._finish()
        totals = {host: stats.summarize(host) for host in sorted(stats.processed)}
        changed = sum(total["changed"] for total in totals.values())
        failed = [host for host, total in totals.items() if total["failures"] or total["unreachable"]]
        duration = _clock(time.monotonic() - self._playbook_start_s)
        hosts = f"{len(totals)} host{'' if len(totals) == 1 else 's'}"
        text = f"\n{hosts}, changed={changed}, failed={len(failed)}, {duration}"
        self._display.display(text, color="red" if failed else "green")
        if not self._failed:
            _store(self._playbook, self._done)

    def _keep_failure(self, result: Any) -> None:
        self._failed = True
        host, lines = result._host.get_name(), reason(result._result)
        self._failures.setdefault(common_text("\n".join(lines), [host]), Failure(lines)).hosts.append(host)

    def _explain(self) -> None:
        """Print each reason once, with its hosts, unless it only repeats that of an earlier task."""
        for failure in self._failures.values():
            new = [line for line in failure.lines if not repeats(line, self._explained)]
            if new:
                self._display.display(f"  FAILED  {failure.host_names()}: {self._title}", color="red")
            for line in new:
                self._display.display(f"          {line}", color="red")
            self._explained += [line.removeprefix(UNSUPPORTED) for line in new]
        self._failures.clear()

    def _print_heading(self) -> None:
        if self._heading:
            self._display.display(f"\n{self._heading}", color="bright blue")
            self._heading = ""

    def _finish(self) -> None:
        if not self._title:
            return
        duration_s = time.monotonic() - self._task_start_s
        self._done.append((self._title, round(duration_s, 2)))
        on_terminal = sys.stdout.isatty()
        if on_terminal:
            sys.stdout.write("\x1b[2K\r")
            sys.stdout.flush()
        if self._states.keys() - {"skipped"}:
            self._print_heading()
        self._explain()
        states = {state: count for state, count in self._states.items() if state != "skipped"}
        if states:
            counts = ", ".join(f"{state} {count}" for state, count in states.items())
            line = f"{duration_s:6.1f}s  {self._title}: {counts}"
            color = "yellow" if "changed" in states else "green"
            left = "" if on_terminal else self._left()  # the line of the next task has it
            self._display.display(f"{line}{left}", color="red" if "failed" in states else color)
        for line in self._messages:
            self._display.display(line)
        self._title = ""
        self._states.clear()
        self._messages.clear()

    def _left(self) -> str:
        """Return how long the remaining tasks took in the last run, e.g. ``  (about 1:20 left)``."""
        left_s = self._past.left_s()
        return f"  (about {_clock(left_s)} left)" if left_s >= 1 else ""


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _load() -> dict[str, Any]:
    try:
        loaded = json.loads(history_file().read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _store(playbook: str, durations: list[tuple[str, float]]) -> None:
    """Remember the durations. If that fails, the next estimate of the time left is that of an earlier run."""
    path = history_file()
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({**_load(), playbook: durations}))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
