"""``guest_program`` on the controller: reads orders from a trial's folder; see library/guest_program.py.

Strings of an experiment, of a run or of a record are data of others. A variable would be taken for a
template, whose expressions run on the controller. So the steps of an order pass from the file to the host as
one text, and what the playbook itself needs of a trial is a result, whose strings Ansible does not trust.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

ORDERS = "orders.json"  # dasklab.model.experiments.order


class ActionModule(ActionBase):  # type: ignore[misc]
    """Adds a host's order to the arguments of the module."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module answers on the host, or what the playbook needs to know of a trial."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        folder, name = arguments.pop("trial", None), arguments.pop("phase", None)
        if folder is None:
            return {**result, **self.on_host(arguments, task_vars)}
        trial = json.loads(Path(folder, ORDERS).read_text(encoding="utf-8"))["trial"]
        if arguments["action"] == "outline":
            for phase in trial["phases"]:
                phase["hosts"] = list(phase.pop("orders"))
            return {**result, "changed": False, **trial}
        [orders] = [phase["orders"] for phase in trial["phases"] if phase["name"] == name]
        arguments["order"] = json.dumps(orders[(task_vars or {})["inventory_hostname"]])
        return {**result, **self.on_host(arguments, task_vars)}

    def on_host(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Run the module on the host."""
        return dict(self._execute_module(module_args=arguments, task_vars=task_vars))
