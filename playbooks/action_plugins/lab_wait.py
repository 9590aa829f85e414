"""``lab_wait``: wait until a host lets one in; see library/lab_wait.py."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

PAUSE_S = 1
SPEC = {"timeout_s": {"type": "int", "default": 300}}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Tries the connection again and again."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task on one host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        until = time.monotonic() + arguments["timeout_s"]
        while trouble := self._trouble():
            if time.monotonic() > until:
                message = f"no answer in {arguments['timeout_s']} s: {trouble}"
                return {**result, "failed": True, "msg": message}
            time.sleep(PAUSE_S)
        return result

    def _trouble(self) -> str | None:
        """Why the host does not let one in yet; None when it does. An old connection to it is closed."""
        self._connection.reset()
        try:
            done = self._low_level_execute_command("true")
        except AnsibleConnectionFailure as error:
            return str(error)
        return None if done["rc"] == 0 else str(done["stderr"] or done["stdout"])
