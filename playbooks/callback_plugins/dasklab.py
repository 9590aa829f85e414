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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

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


LINES = 12  # of a command's last words
NAMED = 8  # hosts, where many failed alike
FAREWELL = "Shared connection to "  # ssh's own, at each command's end
UNSUPPORTED = "unsupported: "  # how lab_command begins where a host cannot do what is asked
WORDLESS = "non-zero return code"  # what Ansible says of a command that had more to say itself


OWN = {  # what is only a host's own in a cause that several have
    r"\b\d+(\.\d+){3}\b": "ADDRESS",
    r"UPID:\S+": "TASK",
    r"(?<![\w.:])/[^\s'\",;|()]+": "PATH",
    r"(?i)\b(vm|ct|vmid|tap|veth|lock|base|qemu|lxc)([ /-]?)[1-9]\d{2,8}": r"\1\2VMID",
    r":[1-9]\d{2,8}/": ":VMID/",  # of a volume
}


def history_file() -> Path:
    """Where the last run's durations are kept."""
    cache = os.environ.get("DASKLAB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache) if cache else Path(base).expanduser() / "dasklab") / "durations.json"


@dataclass
class Failure:
    """A cause and the hosts that it was the cause on."""

    lines: list[str]
    hosts: list[str] = field(default_factory=list)

    def where(self) -> str:
        """Return the hosts' names; of many the first ones."""
        names = sorted(self.hosts, key=lambda name: re.sub(r"\d+", lambda number: number[0].zfill(6), name))
        more = len(names) - NAMED
        return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def reason(result: dict[str, Any]) -> list[str]:
    """Return why a task failed, as lines: the module's own words, and the last ones of its command (pure)."""
    message = str(result.get("msg") or "").strip()
    said, stdout = (str(result.get(key) or "").splitlines()[-LINES:] for key in ("stderr", "stdout"))
    said = [line for line in said if not line.startswith(FAREWELL)] + list(result.get("said") or [])
    lines = [line.rstrip() for line in ([] if message == WORDLESS else message.splitlines()) + said]
    return list(dict.fromkeys(filter(None, lines))) or stdout or [message or "no reason given"]


def alike(host: str, lines: list[str]) -> str:
    """Return what two hosts say alike of one cause: all but names, addresses, VMIDs and paths (pure)."""
    text = re.sub(rf"\b{re.escape(host)}\b", "HOST", "\n".join(lines))
    for pattern, name in OWN.items():
        text = re.sub(pattern, name, text)
    return text


def repeats(line: str, known: list[str]) -> bool:
    """Tell whether a line says what is known already, perhaps with a word of where (pure)."""
    return any(line.removeprefix(UNSUPPORTED) == each or line.endswith(f": {each}") for each in known)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Prints a line per task when it ends; failures with the words that help."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "dasklab"

    def __init__(self) -> None:
        super().__init__()
        self._heading = self._title = ""
        self._began = self._started = time.monotonic()
        self._states: Counter[str] = Counter()
        self._done: list[tuple[str, float]] = []
        self._past: list[tuple[str, float]] = []
        self._playbook = ""
        self._messages: list[str] = []
        self._failures: dict[str, Failure] = {}  # of the task, by what is alike
        self._explained: list[str] = []  # lines on failures that are on the screen
        self._failed = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Load what the last run of this playbook took."""
        self._playbook = Path(playbook._file_name).name
        self._past = [(str(t), float(s)) for t, s in _load().get(self._playbook, [])]

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the play's name, a heading for its first task: a play without a host has none."""
        self._finish()
        self._heading = play.get_name().strip()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Begin a line."""
        self._finish()
        if self._heading:
            self._display.display(f"\n{self._heading}", color="bright blue")
            self._heading = ""
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
            lines = str(result._result.get("msg", "")).rstrip().splitlines()
            self._messages += [f"    {line}" for line in lines]

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Count."""
        self._states["skipped"] += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep where and what, until the task has ended on all hosts: most causes are those of several."""
        self._states["failed"] += 1
        self._keep(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep where and what."""
        self._states["unreachable"] += 1
        self._keep(result)

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

    def _keep(self, result: Any) -> None:
        self._failed = True
        host, lines = result._host.get_name(), reason(result._result)
        self._failures.setdefault(alike(host, lines), Failure(lines)).hosts.append(host)

    def _explain(self) -> None:
        """Print each cause once, with its hosts; what only repeats an earlier task's cause is left out."""
        for failure in self._failures.values():
            new = [line for line in failure.lines if not repeats(line, self._explained)]
            if new:
                self._display.display(f"  FAILED  {failure.where()}: {self._title}", color="red")
            for line in new:
                self._display.display(f"          {line}", color="red")
            self._explained += [line.removeprefix(UNSUPPORTED) for line in new]
        self._failures.clear()

    def _finish(self) -> None:
        if not self._title:
            return
        spent = time.monotonic() - self._began
        self._done.append((self._title, round(spent, 2)))
        self._explain()
        states = {k: n for k, n in self._states.items() if k != "skipped"}
        if states:
            counted = ", ".join(f"{k} {n}" for k, n in states.items())
            line = f"{spent:6.1f}s  {self._title}: {counted}"
            color = "yellow" if "changed" in states else "green"
            self._display.display(f"{line}{self._left()}", color="red" if "failed" in states else color)
        elif sys.stdout.isatty():
            sys.stdout.write("\x1b[2K\r")
        for line in self._messages:
            self._display.display(line)
        self._title = ""
        self._states.clear()
        self._messages.clear()

    def _left(self) -> str:
        """How long the tasks yet to come took the last time, e.g. ``  (about 1:20 left)``."""
        past = [title for title, _ in self._past]
        if self._title not in past:
            return ""
        here = len(past) - 1 - past[::-1].index(self._title)
        left = sum(seconds for _, seconds in self._past[here + 1 :])
        return f"  (about {_clock(left)} left)" if left >= 1 else ""


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
