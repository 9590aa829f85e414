"""What follows from a machine's place in the inventory: for group_vars, role proxmox_vm and `status`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.utils.display import Display
from dasklab.machines.addressing import Variables, ignored_models, machine, machines
from dasklab.model.nic import LAB_SLOT, net_from_pve, net_key
from jinja2 import pass_context
from jinja2.runtime import Context


@pass_context
def _machine(variables: Context, name: str, names: list[str], node: str) -> dict[str, Any]:
    """The machine of the host with these variables (a variable of ``hostvars`` cannot use ``hostvars``)."""
    return machine(variables, names.index(name), node)


def _machines(names: list[str], hostvars: Mapping[str, Variables], node: str) -> list[dict[str, Any]]:
    """All machines of the lab; says which choices have no effect."""
    for model, hosts in ignored_models(names, hostvars).items():
        Display().warning(f"lab_nic_model {model} has no effect on containers: {', '.join(hosts)}")
    return machines(names, hostvars, node)


def _lab_link(nets: dict[str, str]) -> str:
    """What `dasklab status` says of a machine's lab link, from its NICs as the endpoint has them."""
    text = nets.get(net_key(LAB_SLOT))
    return str(net_from_pve(text)) if text else ""


class FilterModule:
    """Ansible's way to the functions above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"lab_machine": _machine, "lab_machines": _machines, "lab_link": _lab_link}
