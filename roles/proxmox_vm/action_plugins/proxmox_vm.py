"""``proxmox_vm``: the lab's machines on an endpoint; see library/proxmox_vm.py.

It runs where Ansible does: a module would start another Python and import everything again for each look.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from dasklab.errors import LabError
from dasklab.machines.plan.provision import Request, provision, provision_fresh
from dasklab.model.forms.strict import plain

SPEC = {
    "endpoint": {"type": "dict", "required": True},
    "token_secret": {"type": "str", "required": True, "no_log": True},
    "lab": {"type": "dict", "required": True},
    "guests": {"type": "dict", "default": {}},
    "nics": {"type": "dict", "default": {}},
    "state": {"choices": ["started", "absent"], "default": "started"},
    "parallel": {"type": "int", "default": 4},
    "fresh": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Observes, plans and (not in check mode) applies."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the task, and report in Ansible's terms."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(SPEC)
        try:
            request = Request.from_params(plain(arguments))
            if arguments["fresh"] and self._task.check_mode:
                outcome = provision_fresh(request)
            else:
                builds_images = "endpoint_image_build" in (task_vars or {})
                outcome = provision(request, apply=not self._task.check_mode, builds_images=builds_images)
        except LabError as error:
            raise AnsibleActionFail(str(error)) from None
        started = [] if self._task.check_mode else outcome.started
        return {
            **result,
            "changed": bool(outcome.calls),
            "calls": outcome.calls,
            "changes": outcome.changes,
            "created": outcome.created,
            "starting": list(dict.fromkeys([*outcome.starting, *started])),
            "guests": outcome.guests,
            "diff": {"prepared": outcome.text},
            "warnings": outcome.warnings,
        }
