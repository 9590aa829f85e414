"""``lab_command``: a command on a host whose answer is JSON, or lines; see library/lab_command.py."""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

from ansible.plugins.action import ActionBase

UNSUPPORTED = 3  # exit status of the lab's programs for what a host cannot do
SPEC = {"cmd": {"type": "str", "required": True}, "answer": {"choices": ["json", "lines"], "default": "json"}}
KEPT = 12  # lines of what a command said when it failed
CUT = 200  # characters of an answer that is none, to be known again by


def outcome(rc: int, stdout: str, stderr: str, answer: str = "json") -> dict[str, Any]:
    """Return the task's result: the answer, or one line on why there is none (pure)."""
    if rc:
        lines = said(stdout, stderr) or [f"exit status {rc}"]
        message = f"unsupported: {unsupported(lines[-1])}" if rc == UNSUPPORTED else lines[-1]
        return {"failed": True, "rc": rc, "msg": message, "said": lines[-KEPT:-1]}
    if answer == "lines":
        return {"rc": rc, "answer": stdout.splitlines()}
    try:
        return {"rc": rc, "answer": json.loads(stdout, parse_constant=_refuse)}
    except ValueError as error:
        return {"failed": True, "rc": rc, "msg": f"the answer is no JSON ({error}): {stdout.strip()[:CUT]!r}"}


def unsupported(line: str) -> str:
    """Return what a host cannot do, from a program's answer or from plain words (pure)."""
    try:
        return str(json.loads(line)["unsupported"])
    except (ValueError, TypeError, KeyError):
        return line


def said(stdout: str, stderr: str) -> list[str]:
    """Return the lines of a command that failed; ssh's own farewell, on a terminal, is none (pure)."""
    lines = [line.strip() for line in f"{stdout}\n{stderr}".splitlines()]
    return [line for line in lines if line and not line.startswith("Shared connection to ")]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the command over the host's connection, without Python there."""

    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task on one host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        asked_s = time.time()
        done = self._low_level_execute_command(arguments["cmd"])
        return {
            **result,
            "asked_s": asked_s,
            "answered_s": time.time(),
            **outcome(done["rc"], done["stdout"], done["stderr"], arguments["answer"]),
        }
