"""Derive VMIDs, addresses and MACs of machines from their position in the inventory. Pure.

Variables are read here by name rather than combined in a Jinja template, because Ansible compiles a template
again for each host; with hundreds of machines that took most of the planning time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any, Protocol

from dasklab.errors import LabError
from dasklab.model.settings.nic import DEFAULT_MODEL

FIRST_ADDRESS = 11  # last octet of the first machine, in both subnets


class Variables(Protocol):
    """The variables of one host. Each is resolved when it is read."""

    def __getitem__(self, name: str, /) -> Any: ...

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the variable, or ``default`` if the host has none."""


def machines(names: Sequence[str], hostvars: Mapping[str, Variables], node: str) -> list[dict[str, Any]]:
    """Return the machines of a lab in the order of ``names``, each as input for ``topology.Guest``.

    Args:
        names: the hosts.
        hostvars: the variables of each host by its name.
        node: the node of hosts without a ``vm_node``.
    """
    return [machine(hostvars[name], position, node) for position, name in enumerate(names)]


def machine(host: Variables, position: int, node: str) -> dict[str, Any]:
    """Return one machine.

    Args:
        host: the host's variables.
        position: its position in the lab, from 0.
        node: its node, unless it has a ``vm_node``.

    Raises:
        LabError: a variable is missing, or there are more machines than addresses.
    """
    name = host["inventory_hostname"]
    kind = host.get("lab_guests", "vm")
    vmid = int(host.get("vm_id") or int(_required(host, "lab_first_vmid")) + position + 1)
    mac = f"02:DA:5C:{vmid >> 8 & 0xFF:02X}:{vmid & 0xFF:02X}"
    link_bridge = _required(host, "lab_bridge")
    management = {
        "model": DEFAULT_MODEL[kind],
        "mac": f"{mac}:00",
        "bridge": _required(host, "lab_management_bridge"),
        "address": host.get("management_address"),
        "gateway": host.get("lab_management_gateway"),
    }
    link = {
        "model": _required(host, "lab_nic_model") if kind == "vm" else DEFAULT_MODEL[kind],
        "mac": f"{mac}:01",
        "bridge": link_bridge,
        "rate_mbit": host.get("lab_nic_rate_mbit", 0),
    }
    capture = {"model": DEFAULT_MODEL[kind], "mac": f"{mac}:02", "bridge": link_bridge}
    return {
        "name": name,
        "kind": kind,
        "vmid": vmid,
        "node": host.get("vm_node") or node,
        "cores": _required(host, "vm_cores"),
        "memory_mb": _required(host, "vm_memory_mb"),
        "nics": [
            _addressed(management, _required(host, "lab_management_subnet"), position, name),
            _addressed(link, _required(host, "lab_subnet"), position, name),
            *([capture] if host.get("lab_captures") else []),
        ],
    }


def ignored_models(names: Sequence[str], hostvars: Mapping[str, Variables]) -> dict[str, list[str]]:
    """Return the NIC models that were set for containers, which ignore them: model -> hosts."""
    ignored: dict[str, list[str]] = {}
    for name in names:
        host = hostvars[name]
        model = host.get("lab_nic_model")
        if host.get("lab_guests", "vm") == "container" and model not in (None, *DEFAULT_MODEL.values()):
            ignored.setdefault(model, []).append(name)
    return ignored


def _required(host: Variables, variable: str) -> Any:
    if (value := host.get(variable)) is None:
        raise LabError(f"inventory: {host['inventory_hostname']} has no variable {variable!r}")
    return value


def _addressed(nic: dict[str, Any], subnet: str, position: int, name: str) -> dict[str, Any]:
    """Return the NIC with an address: its own, or the one at ``position`` in ``subnet``.

    Args:
        nic: the NIC.
        subnet: the first three parts of a /24.
        position: the machine's position in the lab, from 0.
        name: the machine's name, for errors.
    """
    network = IPv4Network(f"{subnet}.0/24")
    if FIRST_ADDRESS + position >= network.num_addresses - 1:
        raise LabError(f"{name} is machine {position + 1}, but {network} has addresses for only 244")
    address = nic.get("address") or network[FIRST_ADDRESS + position]
    return {**nic, "address": f"{address}/{network.prefixlen}"}
