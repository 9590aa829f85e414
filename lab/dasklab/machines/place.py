"""Who a machine is follows from its place in the inventory: VMID, addresses and MACs. Pure.

A host's variables are read here by name rather than spelled out in a template: a template is compiled
anew for each host, which would take most of the time of planning hundreds of machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any, Protocol

from dasklab.errors import LabError
from dasklab.model.nic import DEFAULT_MODEL

FIRST_ADDRESS = 11  # of the first machine, in both subnets


class Variables(Protocol):
    """The variables of one host, each resolved when it is asked for."""

    def __getitem__(self, name: str, /) -> Any: ...

    def get(self, name: str, default: Any = None, /) -> Any:
        """Return the variable, or ``default`` where the host has none."""


def machines(names: Sequence[str], hostvars: Mapping[str, Variables], node: str) -> list[dict[str, Any]]:
    """Return the machines ``names`` of a lab, in this order, as ``dasklab.machines.topology.Guest``.

    ``hostvars`` has each host's variables by its name; ``node`` carries those that name no ``vm_node``.
    """
    return [machine(hostvars[name], place, node) for place, name in enumerate(names)]


def machine(host: Variables, place: int, node: str) -> dict[str, Any]:
    """Return the machine of a host (its variables), the ``place``-th of the lab.

    Raises:
        LabError: a variable is missing, or there are more machines than addresses.
    """
    name = host["inventory_hostname"]
    kind = host.get("lab_guests", "vm")
    vmid = int(host.get("vm_id") or int(_needed(host, "lab_first_vmid")) + place + 1)
    mac = f"02:DA:5C:{vmid >> 8 & 0xFF:02X}:{vmid & 0xFF:02X}"
    link_bridge = _needed(host, "lab_bridge")
    management = {
        "model": DEFAULT_MODEL[kind],
        "mac": f"{mac}:00",
        "bridge": _needed(host, "lab_management_bridge"),
        "address": host.get("management_address"),
        "gateway": host.get("lab_management_gateway"),
    }
    link = {
        "model": _needed(host, "lab_nic_model") if kind == "vm" else DEFAULT_MODEL[kind],
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
        "cores": _needed(host, "vm_cores"),
        "memory_mb": _needed(host, "vm_memory_mb"),
        "nics": [
            _addressed(management, _needed(host, "lab_management_subnet"), place, name),
            _addressed(link, _needed(host, "lab_subnet"), place, name),
            *([capture] if host.get("lab_captures") else []),
        ],
    }


def ignored_models(names: Sequence[str], hostvars: Mapping[str, Variables]) -> dict[str, list[str]]:
    """Return the NIC models that were chosen for containers, which have none: model -> hosts."""
    ignored: dict[str, list[str]] = {}
    for name in names:
        host = hostvars[name]
        model = host.get("lab_nic_model")
        if host.get("lab_guests", "vm") == "container" and model not in (None, *DEFAULT_MODEL.values()):
            ignored.setdefault(model, []).append(name)
    return ignored


def _needed(host: Variables, variable: str) -> Any:
    if (value := host.get(variable)) is None:
        raise LabError(f"inventory: {host['inventory_hostname']} has no variable {variable!r}")
    return value


def _addressed(nic: dict[str, Any], subnet: str, place: int, name: str) -> dict[str, Any]:
    """Return the NIC with its address: that of the place in ``subnet`` (three parts of a /24), or its own."""
    network = IPv4Network(f"{subnet}.0/24")
    if FIRST_ADDRESS + place >= network.num_addresses - 1:
        raise LabError(f"{name} is machine {place + 1}: {network} has addresses for 244")
    address = nic.get("address") or network[FIRST_ADDRESS + place]
    return {**nic, "address": f"{address}/{network.prefixlen}"}
