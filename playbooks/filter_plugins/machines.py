"""Machines computed from the inventory, and how they are reached: for group_vars and role proxmox_vm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.utils.display import Display
from dasklab.machines.inventory.addressing import Variables, ignored_models, machine, machines
from dasklab.machines.plan.images import resolved
from dasklab.machines.ssh import sockets_folder
from jinja2 import pass_context
from jinja2.runtime import Context


@pass_context
def _machine(variables: Context, name: str, names: list[str], node: str) -> dict[str, Any]:
    """Return the machine of a host with these variables: variables in ``hostvars`` cannot use it."""
    return machine(variables, names.index(name), node)


def _machines(names: list[str], hostvars: Mapping[str, Variables], node: str) -> list[dict[str, Any]]:
    """Return all machines of the lab, with a warning about settings that have no effect."""
    for model, hosts in ignored_models(names, hostvars).items():
        Display().warning(f"lab_nic_model {model} has no effect on containers: {', '.join(hosts)}")
    return machines(names, hostvars, node)


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "lab_machine": _machine,
            "lab_machines": _machines,
            "lab_image": resolved,
            "lab_ssh_sockets": sockets_folder,
        }
