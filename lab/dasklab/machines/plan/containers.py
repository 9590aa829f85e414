"""Plan the API calls that create containers, unpacked from an archive. Pure.

See ``dasklab.machines.plan.lab_plan``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change, Value
from dasklab.machines.endpoint.guest_kinds import CONTAINER
from dasklab.machines.endpoint.observed import ownership_mark
from dasklab.machines.inventory.topology import Archive, Guest, Lab
from dasklab.model.settings.nic import container_net_to_pve, net_key

DEFAULT_DISK_GB = 8


def image(lab: Lab) -> Archive:
    """Return the archive that containers are unpacked from.

    Raises:
        LabError: the inventory names none.
    """
    if lab.container_image is None:
        raise no_image()
    return lab.container_image


def no_image() -> LabError:
    """Return the error for a lab with containers whose inventory names no archive."""
    return LabError(
        "inventory: the lab has containers, but no proxmox_container_image to create them from",
        "set its file or url, as in inventory/group_vars/all.yml, or choose lab_guests: vm",
    )


def make(guest: Guest, lab: Lab) -> Iterator[Change]:
    """Yield the calls that unpack, tag and start a container."""
    path = f"/nodes/{guest.node}/{CONTAINER.path}"
    settings = config(guest, lab)
    tags = settings.pop("tags")  # a token whose rights come from the pool may set tags only afterwards
    creation: dict[str, Value] = {
        "vmid": guest.vmid,
        "ostemplate": f"{lab.image_storage}:{CONTAINER.images}/{lab.name_of(image(lab))}",
        "rootfs": f"{lab.storage}:{lab.disk_gb or DEFAULT_DISK_GB}",
        "ssh-public-keys": lab.ssh_public_key.strip(),
        "pool": lab.pool,
        "features": "nesting=1",
        "unprivileged": int(lab.unprivileged),
    }
    yield Change("POST", path, f"{guest.name}: a container", creation | settings)
    yield Change("PUT", f"{path}/{guest.vmid}/config", f"{guest.name}: the lab's tag", {"tags": tags})
    yield Change("POST", f"{path}/{guest.vmid}/status/start", f"start {guest.name}")


def description(lab: Lab) -> str:
    """Return what a container is made from. A container with another description is created again."""
    key = hashlib.sha256(lab.ssh_public_key.strip().encode()).hexdigest()[:12]
    return (
        f"{ownership_mark(lab)}image={lab.name_of(image(lab))} key={key} unprivileged={int(lab.unprivileged)}"
    )


def config(guest: Guest, lab: Lab) -> dict[str, Value]:
    """Return a container's size, NICs, addresses and description."""
    settings: dict[str, Value] = {
        "hostname": guest.name,
        "cores": guest.cores,
        "memory": guest.memory_mb,
        "swap": 0,
        "description": description(lab),
        "tags": lab.name,
    }
    return settings | {net_key(n): container_net_to_pve(n, nic) for n, nic in enumerate(guest.nics)}


def is_live(key: str, have: str | None, want: Value) -> bool:
    """True for everything that changes: a container with another name is created again."""
    return True
