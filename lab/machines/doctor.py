"""Preflight: what is missing on this machine or on this endpoint, and the line that mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import LabError
from lab.machines.inventory import Inventory
from lab.machines.privileges import Needs, missing, needed, pveum_lines
from lab.machines.proxmox import Endpoint, Pve, check_storages
from lab.machines.topology import Vm
from lab.model.strict import validate

CONTROLLER_TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``mend`` holds the lines that mend it, empty when it is well."""

    what: str
    well: bool
    mend: tuple[str, ...] = ()


def examine(inventory: Inventory) -> Iterator[Finding]:
    """Look at the controller, the inventory and the endpoint; one finding at a time, cheapest first."""
    yield from _tools()
    host = inventory.hosts("lab")[0]
    if not inventory.has(host, "proxmox"):
        names = ", ".join(inventory.hosts("lab"))
        yield Finding(f"inventory {inventory.path}: {names} (machines that exist already)", True)
        return
    try:
        endpoint = endpoint_of(inventory)
        vms = [validate(Vm, inventory.value(n, "vm"), f"inventory: {n}") for n in inventory.hosts("lab")]
        yield Finding(f"inventory {inventory.path}: {len(vms)} machines", True)
        bridges = [nic.bridge for vm in vms for nic in vm.nics]
        yield from _endpoint(Pve(endpoint), inventory.value(host, "proxmox"), bridges)
    except LabError as error:
        yield Finding(error.message, False, (error.hint,) if error.hint else ())


def endpoint_of(inventory: Inventory) -> Endpoint:
    """Return the endpoint that the inventory names.

    Raises:
        LabError: a value is missing or not allowed.
    """
    known = inventory.value(inventory.hosts("lab")[0], "proxmox")
    fields = {k: v for k, v in known.items() if k in Endpoint.model_fields and v not in (None, "")}
    return validate(Endpoint, fields, "inventory: proxmox")


def _tools() -> Iterator[Finding]:
    for tool, package in CONTROLLER_TOOLS.items():
        found = shutil.which(tool)
        yield Finding(
            f"{tool}: {found or 'not found'}", bool(found), () if found else (f"apt install {package}",)
        )


def _endpoint(pve: Pve, proxmox: Mapping[str, Any], bridges: list[str]) -> Iterator[Finding]:
    version = pve.get("version")["version"]
    yield Finding(f"{pve.endpoint.url}: Proxmox VE API {version}, token accepted", True)
    storages = [proxmox["storage"], proxmox["image_storage"]]
    needs = needed(proxmox["pool"], proxmox["node"], storages, bridges, int(version.split(".")[0]))
    yield from _privileges(pve, needs)
    check_storages(pve, proxmox["node"], zip(storages, ["images", "import"], strict=True))
    yield Finding(f"node {proxmox['node']}: storage {', '.join(dict.fromkeys(storages))}", True)


def _privileges(pve: Pve, needs: Needs) -> Iterator[Finding]:
    granted = {path: pve.get("access/permissions", path=path).get(path, {}) for path in needs}
    lacking = missing(needs, granted)
    if not lacking:
        yield Finding(f"privileges on {', '.join(needs)}", True)
    lines = iter(pveum_lines(lacking, pve.endpoint.user, pve.endpoint.token_id))
    for path, privileges in sorted(lacking.items()):
        mend = ("as root on a node:", next(lines), next(lines), next(lines))
        yield Finding(f"no {' '.join(privileges)} on {path}", False, mend)
