"""The lab as its inventory describes it. A trial is this plus an experiment's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasklab.machines.inventory import Inventory
from dasklab.model.nic import LAB_SLOT, GuestKind, NicSettings
from dasklab.model.strict import validate
from dasklab.model.trial import Setup

IMAGES: Mapping[GuestKind, str] = {"vm": "proxmox_image", "container": "proxmox_container_image"}


def setup_of(inventory: Inventory) -> Setup:
    """Read hosts, their kinds, lab NICs and offloads from the inventory.

    Machines that exist already have no kinds and NICs here, because we cannot change them.

    Raises:
        LabError: a value of the inventory is missing or not allowed.
    """
    hosts = inventory.hosts()
    has_hypervisor = bool(inventory.hosts("hypervisors"))
    guests = {host: inventory.value(host, "guest") for host in hosts} if has_hypervisor else {}
    return Setup(
        hosts=tuple(hosts),
        kinds=_kinds(inventory, hosts[0]) if has_hypervisor else (),
        guests={host: guest["kind"] for host, guest in guests.items()},
        nics={host: _nic(guest, f"inventory {inventory.path}: {host}") for host, guest in guests.items()},
        offloads={
            host: offloads for host in hosts if (offloads := inventory.optional(host, "guest_offloads"))
        },
        bridge=has_hypervisor,
    )


def _kinds(inventory: Inventory, host: str) -> tuple[GuestKind, ...]:
    return tuple(kind for kind, image in IMAGES.items() if inventory.has(host, image))


def _nic(guest: Mapping[str, Any], where: str) -> NicSettings:
    nic = guest["nics"][LAB_SLOT]
    return validate(NicSettings, {key: nic[key] for key in NicSettings.model_fields if key in nic}, where)
