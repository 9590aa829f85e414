"""``lab_fetch``: files of a host, copied here; see library/lab_fetch.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from dasklab import atomic

SPEC = {
    "src": {"type": "str", "required": True},
    "sizes": {"type": "dict", "required": True},
    "dest": {"type": "path", "required": True},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Copies, and compares the sizes."""

    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task on one host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        for name, size in arguments["sizes"].items():
            copy = Path(arguments["dest"]) / name
            with atomic.replaced(copy) as draft:
                self._connection.fetch_file(f"{arguments['src']}/{name}", str(draft))
                fetched = draft.stat().st_size
                if fetched != size:
                    raise AnsibleActionFail(f"{copy} has {fetched} bytes; on the host it had {size}")
        return {**result, "changed": bool(arguments["sizes"])}
