"""Check this machine, the inventory and the endpoint; report what is missing and how to fix it."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from dasklab.errors import LabError
from dasklab.machines import ssh
from dasklab.machines.endpoint import preflight
from dasklab.machines.endpoint.preflight import Finding, Requirements
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.endpoint import mistake_in_host
from dasklab.machines.inventory.topology import Archive, Guest, Image
from dasklab.machines.plan import containers, images
from dasklab.model.forms.json_output import CONFIG
from dasklab.model.forms.strict import validate
from dasklab.model.settings.nic import GuestKind

CONTROLLER_TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client"}
IMAGES: dict[GuestKind, str] = {"vm": "proxmox_image", "container": "proxmox_container_image"}
PACKAGES = ("dasklab", "dask", "distributed", "ansible-core", "proxmoxer")
WITHOUT_NODE_SSH = (
    "or without ssh: leave the group hypervisors empty and write the node's name as proxmox.node.",
    "Trials are then timed on the learning bridge, and a capture contains only the client's own frames.",
)


@dataclass(frozen=True)
class CheckedLab:
    """The output of `dasklab doctor`."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    versions: Annotated[dict[str, str], Field(description="Of the system, of Python and of packages.")]
    folders: dict[str, str]
    findings: list[Finding]
    experiments: Annotated[
        dict[str, list[str]], Field(description="Kind of guest -> what the lab supports with it.")
    ]


def versions() -> dict[str, str]:
    """Return what a report of a fault needs: the system, and the versions of what dasklab builds on."""
    present = {package.name for package in importlib.metadata.distributions()}
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES if name in present},
    }


def examine(inventory: Inventory, *, endpoint: bool = True) -> Iterator[Finding]:
    """Check the controller, the inventory and, unless it is not running, the endpoint; quick checks first."""
    yield from _tools()
    hosts = inventory.hosts("lab")
    if not inventory.has(hosts[0], "proxmox"):
        yield Finding(f"inventory {inventory.path}: {', '.join(hosts)} (machines that exist already)", True)
        return
    try:
        requirements = _requirements(inventory) if endpoint else None
        yield Finding(f"inventory {inventory.path}: {len(hosts)} machines", True)
        yield from _image_files(inventory)
        if requirements:
            yield from preflight.endpoint(requirements, inventory.value(hosts[0], "proxmox"))
    except LabError as error:
        yield Finding(error.message, False, (error.hint,) if error.hint else ())
    yield from _node_ssh(inventory)


def _tools() -> Iterator[Finding]:
    for tool, package in CONTROLLER_TOOLS.items():
        path = shutil.which(tool)
        yield Finding(
            f"{tool}: {path or 'not found'}", bool(path), () if path else (f"apt install {package}",)
        )


def _requirements(inventory: Inventory) -> Requirements:
    hosts = inventory.hosts("lab")
    guests = _guests(inventory)
    proxmox = inventory.value(hosts[0], "proxmox")
    return Requirements(
        lab=inventory.value(hosts[0], "lab_name"),
        download=any(image.url and not image.file for image in _images(inventory, guests).values()),
        own_bridge=inventory.value(hosts[0], "lab_bridge"),
        bridges=frozenset(nic.bridge for guest in guests for nic in guest.nics),
        kinds=frozenset(guest.kind for guest in guests),
        nodes=tuple(dict.fromkeys(guest.node for guest in guests)),
        **{key: proxmox[key] for key in ("pool", "storage", "image_storage")},
    )


def _guests(inventory: Inventory) -> list[Guest]:
    return [
        validate(Guest, inventory.value(host, "guest"), f"inventory: {host}")
        for host in inventory.hosts("lab")
    ]


def _images(inventory: Inventory, guests: Iterable[Guest]) -> dict[GuestKind, Image]:
    """Return the image of each kind of guest that the lab has, with the whole path of its file."""
    host, models = inventory.hosts("lab")[0], {"vm": Image, "container": Archive}
    settings = {
        kind: images.resolved(inventory.optional(host, IMAGES[kind]), str(inventory.path))
        for kind in sorted({guest.kind for guest in guests})
    }
    return {
        kind: validate(models[kind], image, f"inventory: {IMAGES[kind]}")
        for kind, image in settings.items()
        if image
    }


def _image_files(inventory: Inventory) -> Iterator[Finding]:
    """Check that the image files exist. A local endpoint builds its own."""
    if inventory.has(inventory.hosts("lab")[0], "endpoint_image_build"):
        return
    guests = _guests(inventory)
    image_of = _images(inventory, guests)
    for kind, image in image_of.items():
        if error := images.missing_file(kind, image):
            yield Finding(error.message, False, (error.hint or "",))
        elif image.file:
            yield Finding(f"image file {image.file}", True)
    if "container" not in image_of and any(guest.kind == "container" for guest in guests):
        error = containers.no_image()
        yield Finding(error.message, False, (error.hint or "",))


def _node_ssh(inventory: Inventory) -> Iterator[Finding]:
    """Check ssh to the nodes. It sets a bridge's ageing time, the only thing that the API cannot do."""
    for node in inventory.hosts("hypervisors"):
        connection = str(inventory.optional(node, "ansible_connection"))
        is_local = connection.removeprefix("ansible.builtin.") == "local"
        address = str(inventory.optional(node, "ansible_host") or "")  # empty until the environment has it
        if is_local or not address:
            continue
        if mistake := mistake_in_host(address):
            yield Finding(f"inventory: {node}: ansible_host: {mistake}", False)
        else:
            yield _ssh(ssh.command(inventory, node, *ssh.UNATTENDED))


def _ssh(argv: list[str]) -> Finding:
    process = subprocess.run([*argv, "true"], capture_output=True, text=True, check=False)
    if not process.returncode:
        return Finding(f"{argv[-1]}: ssh works (it sets the bridge's ageing time)", True)
    reason = (process.stderr.strip().splitlines() or [f"ssh ended with {process.returncode}"])[-1]
    text = f"ssh does not work ({reason}); it sets the bridge's ageing time, which the API cannot"
    return Finding(f"{argv[-1]}: {text}", False, (f"ssh-copy-id {argv[-1]}", *WITHOUT_NODE_SSH))
