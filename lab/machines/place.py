"""Who a machine is follows from its place in the inventory: VMID, addresses and MACs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

from lab.errors import LabError

FIRST_ADDRESS = 11  # of the first machine, in both subnets


def machine(
    name: str,
    lab: Sequence[str],
    *,
    first_vmid: int,
    management: Mapping[str, Any],
    link: Mapping[str, Any],
    captures: bool,
    vmid: int | None = None,
    **sizes: Any,
) -> dict[str, Any]:
    """Return the machine ``name`` of the machines ``lab``, as ``lab.machines.topology.Vm``.

    ``management`` and ``link`` are the two NICs as far as the inventory says them, each with its ``subnet``,
    the first three parts of a /24. ``sizes`` (node, cores, memory_mb) are passed on.

    Raises:
        LabError: there are more machines than addresses.
    """
    place = list.index(list(lab), name)
    vmid = int(first_vmid) + place + 1 if vmid is None else int(vmid)
    mac = f"02:DA:5C:{vmid >> 8 & 0xFF:02X}:{vmid & 0xFF:02X}"
    nics = [
        {"model": "virtio", "mac": f"{mac}:00", **_addressed(management, place, name)},
        {"mac": f"{mac}:01", **_addressed(link, place, name)},
        {"model": "virtio", "mac": f"{mac}:02", "bridge": link["bridge"]},
    ]
    return {"name": name, "vmid": vmid, **sizes, "nics": nics if captures else nics[:2]}


def _addressed(nic: Mapping[str, Any], place: int, name: str) -> dict[str, Any]:
    """The NIC with the address of that place in its subnet, unless it has one of its own."""
    subnet = IPv4Network(f"{nic['subnet']}.0/24")
    if FIRST_ADDRESS + place >= subnet.num_addresses - 1:
        raise LabError(f"{name} is machine {place + 1}: {subnet} has addresses for 244")
    address = nic.get("address") or subnet[FIRST_ADDRESS + place]
    return {**{k: v for k, v in nic.items() if k != "subnet"}, "address": f"{address}/{subnet.prefixlen}"}
