"""Preflight: what is missing on this machine or on this endpoint, and the line that mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.inventory import Inventory
from lab.plan import Observed, plan
from lab.privileges import missing, needed, pveum_lines
from lab.proxmox import Endpoint, Pve, observe
from lab.topology import Lab, Vm, check_unique, validate

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
        lab, endpoint = wanted(inventory), endpoint_of(inventory)
        check_unique(lab)
    except LabError as error:
        yield _bad(error)
        return
    yield Finding(f"inventory {inventory.path}: {len(lab.vms)} machines", True)
    yield from _endpoint(Pve(endpoint), lab)


def wanted(inventory: Inventory) -> Lab:
    """Return the lab that the inventory describes, in the words of the role ``proxmox_vm``.

    Raises:
        LabError: a value is missing or not allowed.
    """
    host = inventory.hosts("lab")[0]
    proxmox = inventory.value(host, "proxmox")
    names = inventory.hosts("lab")
    key = Path(str(inventory.value(host, "lab_ssh_key")) + ".pub")
    return Lab(
        name=inventory.value(host, "lab_name"),
        pool=proxmox["pool"],
        node=proxmox["node"],
        storage=proxmox["storage"],
        image_storage=proxmox["image_storage"],
        image=inventory.value(host, "proxmox_image"),
        template_vmid=inventory.value(host, "lab_first_vmid"),
        disk_gb=inventory.optional(host, "proxmox_disk_gb") or 0,
        ssh_public_key=key.read_text() if key.exists() else "",
        bridges=(inventory.value(host, "lab_bridge"),),
        vms=tuple(validate(Vm, inventory.value(n, "vm"), f"inventory: {n}") for n in names),
    )


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


def _endpoint(pve: Pve, lab: Lab) -> Iterator[Finding]:
    url = pve.endpoint.url
    try:
        version = pve.get("version")["version"]
        yield Finding(f"{url}: Proxmox VE API {version}, token accepted", True)
        yield from _privileges(pve, lab, int(version.split(".")[0]))
        seen = observe(pve, lab)
        yield Finding(
            f"node {lab.node}: storages {lab.storage}, {lab.image_storage} take what is needed", True
        )
        yield from _obstacles(seen, lab)
    except LabError as error:
        yield _bad(error)


def _privileges(pve: Pve, lab: Lab, major: int) -> Iterator[Finding]:
    needs = needed(lab, major)
    granted = {path: pve.get("access/permissions", path=path).get(path, {}) for path in needs}
    lacking = missing(needs, granted)
    if not lacking:
        yield Finding(f"privileges on {', '.join(needs)}", True)
    lines = iter(pveum_lines(lacking, pve.endpoint.user, pve.endpoint.token_id))
    for path, privileges in sorted(lacking.items()):
        mend = ("as root on a node:", next(lines), next(lines), next(lines))
        yield Finding(f"no {' '.join(privileges)} on {path}", False, mend)


def _obstacles(seen: Observed, lab: Lab) -> Iterator[Finding]:
    try:
        steps = plan(seen, lab)
    except LabError as error:
        yield _bad(error)
        return
    calls = sum(len(chain) for step in steps for chain in step.chains)
    yield Finding(
        f"plan: {calls} calls" if calls else "plan: nothing to do, the lab is as the inventory says", True
    )


def _bad(error: LabError) -> Finding:
    return Finding(error.message, False, (error.hint,) if error.hint else ())
