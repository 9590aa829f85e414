"""The calls that make containers, unpacked from one archive. Pure; see ``dasklab.machines.kinds``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from dasklab.errors import LabError
from dasklab.machines.change import Change, Value
from dasklab.machines.observed import mark
from dasklab.machines.topology import Archive, Guest, Lab
from dasklab.model.nic import container_net_to_pve, net_key

API = "lxc"
TOOL = "pct"
DISKS = "rootdir"
IMAGES = "vztmpl"
DISK_GB = 8  # where the inventory says none


def image(lab: Lab) -> Archive:
    """The archive that containers are unpacked from.

    Raises:
        LabError: the inventory names none.
    """
    if lab.container_image is None:
        raise LabError(
            "inventory: containers are wanted, and proxmox_container_image names no archive to make them of",
            "write its file or url, as in inventory/group_vars/all.yml, or choose lab_guests: vm",
        )
    return lab.container_image


def make(guest: Guest, lab: Lab) -> Iterator[Change]:
    """Unpack it, tag it, start it."""
    path = f"/nodes/{guest.node}/{API}"
    given = config(guest, lab)
    tags = given.pop("tags")  # a token of the pool may set them only once it is in it
    fixed: dict[str, Value] = {
        "vmid": guest.vmid,
        "ostemplate": f"{lab.image_storage}:{IMAGES}/{lab.name_of(image(lab))}",
        "rootfs": f"{lab.storage}:{lab.disk_gb or DISK_GB}",
        "ssh-public-keys": lab.ssh_public_key.strip(),
        "pool": lab.pool,
        "features": "nesting=1",
        "unprivileged": int(lab.unprivileged),
    }
    yield Change("POST", path, f"{guest.name}: a container", fixed | given)
    yield Change("PUT", f"{path}/{guest.vmid}/config", f"{guest.name}: the lab's tag", {"tags": tags})
    yield Change("POST", f"{path}/{guest.vmid}/status/start", f"start {guest.name}")


def description(lab: Lab) -> str:
    """What a container is made of; one with another description is made anew."""
    key = hashlib.sha256(lab.ssh_public_key.strip().encode()).hexdigest()[:12]
    return f"{mark(lab)}image={lab.name_of(image(lab))} key={key} unprivileged={int(lab.unprivileged)}"


def config(guest: Guest, lab: Lab) -> dict[str, Value]:
    """Size, NICs and addresses, and what it is made of."""
    made: dict[str, Value] = {
        "hostname": guest.name,
        "cores": guest.cores,
        "memory": guest.memory_mb,
        "swap": 0,
        "description": description(lab),
        "tags": lab.name,
    }
    return made | {net_key(n): container_net_to_pve(n, nic) for n, nic in enumerate(guest.nics)}


def is_live(key: str, have: str | None, want: Value) -> bool:
    """All but its name, which is written inside when it starts."""
    return key != "hostname"
