"""What is missing on this machine, in the inventory or on its endpoint, and the lines that mend it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from dasklab.errors import LabError
from dasklab.machines import preflight, ssh
from dasklab.machines.inventory import Inventory
from dasklab.machines.preflight import Finding, Wanted
from dasklab.machines.topology import Guest
from dasklab.model.strict import validate

CONTROLLER_TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client"}
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
WITHOUT_SHELL = (
    "or do without: leave the group hypervisors empty and write the node's name as proxmox.node.",
    "Then trials are timed on the learning bridge, and a capture sees what the client itself hears.",
)


def examine(inventory: Inventory) -> Iterator[Finding]:
    """Look at the controller, the inventory and the endpoint; one finding at a time, cheapest first."""
    yield from _tools()
    names = inventory.hosts("lab")
    if not inventory.has(names[0], "proxmox"):
        told = ", ".join(names)
        yield Finding(f"inventory {inventory.path}: {told} (machines that exist already)", True)
        return
    try:
        wanted, said = _wanted(inventory), inventory.value(names[0], "proxmox")
        yield Finding(f"inventory {inventory.path}: {len(names)} machines", True)
        yield from preflight.endpoint(wanted, said)
    except LabError as error:
        yield Finding(error.message, False, (error.hint,) if error.hint else ())
    yield from _node_shells(inventory)


def _tools() -> Iterator[Finding]:
    for tool, package in CONTROLLER_TOOLS.items():
        found = shutil.which(tool)
        yield Finding(
            f"{tool}: {found or 'not found'}", bool(found), () if found else (f"apt install {package}",)
        )


def _wanted(inventory: Inventory) -> Wanted:
    names = inventory.hosts("lab")
    guests = [validate(Guest, inventory.value(name, "guest"), f"inventory: {name}") for name in names]
    proxmox = inventory.value(names[0], "proxmox")
    return Wanted(
        lab=inventory.value(names[0], "lab_name"),
        download=bool(inventory.value(names[0], "proxmox_image").get("url")),
        own_bridge=inventory.value(names[0], "lab_bridge"),
        bridges=frozenset(nic.bridge for guest in guests for nic in guest.nics),
        kinds=frozenset(guest.kind for guest in guests),
        nodes=tuple(dict.fromkeys(guest.node for guest in guests)),
        **{key: proxmox[key] for key in ("pool", "storage", "image_storage")},
    )


def _node_shells(inventory: Inventory) -> Iterator[Finding]:
    """The one thing that the API cannot do: a bridge's ageing time is set by ssh on the node."""
    for name in inventory.hosts("hypervisors"):
        if inventory.optional(name, "ansible_connection") != "local" and _address(inventory, name):
            yield _shell(ssh.command(inventory, name, *SSH_OPTIONS))


def _address(inventory: Inventory, name: str) -> str:
    """Where the node is; empty while the environment does not say it."""
    return str(inventory.optional(name, "ansible_host") or "")


def _shell(argv: list[str]) -> Finding:
    done = subprocess.run([*argv, "true"], capture_output=True, text=True, check=False)
    if not done.returncode:
        return Finding(f"{argv[-1]}: ssh lets one in (it sets the bridge's ageing time)", True)
    reason = (done.stderr.strip().splitlines() or [f"ssh ended with {done.returncode}"])[-1]
    what = f"ssh does not let one in ({reason}); it sets the bridge's ageing time, which the API cannot"
    return Finding(f"{argv[-1]}: {what}", False, (f"ssh-copy-id {argv[-1]}", *WITHOUT_SHELL))
