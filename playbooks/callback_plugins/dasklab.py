"""How a playbook looks on the screen: one line a task, with how far it is and how long it will yet take.

The estimate is what the same tasks took the last time (kept in the cache folder); a first
run has none and says so by leaving it out.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: dasklab
type: stdout
short_description: one line a task, with progress and an estimate of the time left
extends_documentation_fragment: [default_callback]
"""


def history_file() -> Path:
    """Where the last run's durations are kept."""
    cache = os.environ.get("DASKLAB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache) if cache else Path(base).expanduser() / "dasklab") / "durations.json"


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Prints a line per task when it ends; failures with the words that help."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "dasklab"

    def __init__(self) -> None:
        super().__init__()
        self._title = ""
        self._began = self._started = time.monotonic()
        self._states: Counter[str] = Counter()
        self._done: list[tuple[str, float]] = []
        self._past: list[tuple[str, float]] = []
        self._playbook = ""
        self._told: list[str] = []
        self._failures: dict[str, tuple[list[str], list[str]]] = {}  # cause -> hosts, lines
        self._failed = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Load what the last run of this playbook took."""
        self._playbook = Path(playbook._file_name).name
        self._past = [(str(t), float(s)) for t, s in _load().get(self._playbook, [])]

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Print the play's name as a heading."""
        self._finish()
        self._display.display(f"\n{play.get_name().strip()}", color="bright blue")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Begin a line."""
        self._finish()
        self._title = task.get_name().strip()
        self._began = time.monotonic()
        if sys.stdout.isatty():
            sys.stdout.write(f"  ....  {self._title}{self._left()}\r")
            sys.stdout.flush()

    v2_playbook_on_handler_task_start = v2_playbook_on_cleanup_task_start = lambda self, task: (
        self.v2_playbook_on_task_start(task, False)
    )

    def v2_runner_on_ok(self, result: Any) -> None:
        """Count; a role's arguments are only worth a line when they are wrong."""
        if result._task.action == "ansible.builtin.validate_argument_spec":
            return
        self._states["changed" if result._result.get("changed") else "ok"] += 1
        self._handle_warnings(result._result)
        if result._task.action in {"debug", "ansible.builtin.debug"}:
            told = str(result._result.get("msg", "")).rstrip().splitlines()
            self._told += [f"    {line}" for line in told]

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Count."""
        self._states["skipped"] += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Say where and what, in the module's own words."""
        self._failed = True
        self._states["failed"] += 1
        self._explain(result._host.get_name(), result._result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Say where and what."""
        self._failed = True
        self._states["unreachable"] += 1
        self._explain(result._host.get_name(), result._result)

    def v2_on_file_diff(self, result: Any) -> None:
        """Show differences, when ``--diff`` asks for them."""
        diff = result._result.get("diff")
        if diff and (result._result.get("changed") or "prepared" in diff):
            self._display.display(self._get_diff(diff))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print one line for the whole run and remember how long each task took."""
        self._finish()
        totals = {h: stats.summarize(h) for h in sorted(stats.processed)}
        changed = sum(t["changed"] for t in totals.values())
        bad = [h for h, t in totals.items() if t["failures"] or t["unreachable"]]
        spent = time.monotonic() - self._started
        text = f"\n{len(totals)} hosts, changed={changed}, failed={len(bad)}, {_clock(spent)}"
        self._display.display(text, color="red" if bad else "green")
        if not self._failed:
            _store(self._playbook, self._done)

    def _explain(self, host: str, result: dict[str, Any]) -> None:
        told = [str(result.get(k, "")).strip() for k in ("msg", "stderr", "stdout")]
        lines = [line for text in told[:2] for line in text.splitlines()[-12:]] or told[2].splitlines()[-12:]
        hosts, _ = self._failures.setdefault(_cause(host, lines), ([], list(dict.fromkeys(lines))))
        hosts.append(host)

    def _tell_failures(self) -> None:
        """What failed alike on several hosts is told once, in the first one's words."""
        for hosts, lines in self._failures.values():
            self._display.display(f"  FAILED  {', '.join(hosts)}: {self._title}", color="red")
            for line in lines:
                self._display.display(f"          {line}", color="red")
        self._failures.clear()

    def _finish(self) -> None:
        if not self._title:
            return
        self._tell_failures()
        spent = time.monotonic() - self._began
        self._done.append((self._title, round(spent, 2)))
        states = {k: n for k, n in self._states.items() if k != "skipped"}
        if states:
            told = ", ".join(f"{k} {n}" for k, n in states.items())
            line = f"{spent:6.1f}s  {self._title}: {told}"
            color = "yellow" if "changed" in states else "green"
            self._display.display(f"{line}{self._left()}", color="red" if "failed" in states else color)
        elif sys.stdout.isatty():
            sys.stdout.write("\x1b[2K\r")
        for line in self._told:
            self._display.display(line)
        self._title = ""
        self._states.clear()
        self._told.clear()

    def _left(self) -> str:
        """How long the tasks yet to come took the last time, e.g. ``  (about 1:20 left)``."""
        past = [title for title, _ in self._past]
        if self._title not in past:
            return ""
        here = len(past) - 1 - past[::-1].index(self._title)
        left = sum(seconds for _, seconds in self._past[here + 1 :])
        return f"  (about {_clock(left)} left)" if left >= 1 else ""


def _cause(host: str, lines: list[str]) -> str:
    """Lines without what is the host's own: its name, and numbers (addresses, ports, process ids)."""
    return re.sub(r"\d+", "#", "\n".join(lines).replace(host, ""))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _load() -> dict[str, Any]:
    try:
        loaded = json.loads(history_file().read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _store(playbook: str, done: list[tuple[str, float]]) -> None:
    path = history_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({**_load(), playbook: done}))
    draft.replace(path)
