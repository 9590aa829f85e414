"""What follows from a machine's place in the inventory: for ``vm`` in group_vars, and for role proxmox_vm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from lab.machines.place import machine, machines


@pass_context
def _machine(variables: Context, name: str, names: list[str], node: str) -> dict[str, Any]:
    """The machine of the host with these variables (a variable of ``hostvars`` cannot use ``hostvars``)."""
    return machine(variables, names.index(name), node)


class FilterModule:
    """Ansible's way to the functions above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"lab_machine": _machine, "lab_machines": machines}
