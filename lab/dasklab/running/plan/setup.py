"""The lab as its inventory describes it. A trial is this plus an experiment's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.experiments.order import LabHost
from dasklab.model.experiments.trial import Setup
from dasklab.model.forms.strict import validate
from dasklab.model.settings.nic import LAB_SLOT, GuestKind, NicSettings

IMAGES: Mapping[GuestKind, str] = {"vm": "proxmox_image", "container": "proxmox_container_image"}

OPTIONAL_VARIABLES = {  # field of LabHost: the variable of role dask or spark
    "venv": "dask_venv",
    "processes": "dask_worker_processes",
    "threads": "dask_worker_threads",
    "scheduler_command": "dask_scheduler_command",
    "records": "workload_record",
    "spark_cores": "spark_cores",
}


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


def lab_hosts(inventory: Inventory) -> dict[str, LabHost]:
    """Read what the orders of a trial need to know of each host.

    Raises:
        LabError: a variable is missing or has a value that is not allowed.
    """
    return {host: _lab_host(inventory, host) for host in inventory.hosts()}


def _lab_host(inventory: Inventory, host: str) -> LabHost:
    values = {
        "role": inventory.value(host, "dask_role"),
        "address": inventory.value(host, "lab_address"),
        "scheduler_address": inventory.value(host, "scheduler_address"),
        **{
            field: inventory.value(host, variable)
            for field, variable in OPTIONAL_VARIABLES.items()
            if inventory.has(host, variable)
        },
    }
    return validate(LabHost, values, f"inventory {inventory.path}: {host}")


def _kinds(inventory: Inventory, host: str) -> tuple[GuestKind, ...]:
    return tuple(kind for kind, image in IMAGES.items() if inventory.has(host, image))


def _nic(guest: Mapping[str, Any], where: str) -> NicSettings:
    nic = guest["nics"][LAB_SLOT]
    return validate(NicSettings, {key: nic[key] for key in NicSettings.model_fields if key in nic}, where)
