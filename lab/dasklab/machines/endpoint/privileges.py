"""Which privileges the lab's token needs on Proxmox VE, why, and the ``pveum`` commands that grant them.

Least privilege: everything on the lab's own pool, storages and bridges; on a node only if its network has to
change or it has to download an image. A role of a given name always has the same privileges, so the commands
may be run again, and two labs may share the roles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from shlex import quote

from dasklab.model.settings.nic import GuestKind

CONTAINER_PRIVILEGES = {
    "VM.Allocate": "POST lxc, DELETE lxc",
    "VM.Audit": "GET lxc",
    "VM.Config.CPU": "PUT config: cores",
    "VM.Config.Disk": "POST lxc: rootfs",
    "VM.Config.Memory": "PUT config: memory, swap",
    "VM.Config.Network": "PUT config: hostname, net0",
    "VM.Config.Options": "PUT config: tags, and the note of who uses the lab",
    "VM.PowerMgmt": "POST status/start and status/stop",
}
# role -> privilege -> the call that needs it
ROLES: Mapping[str, Mapping[str, str]] = {
    "DaskLabMachines": {
        "VM.Allocate": "POST qemu, clone and template, DELETE qemu",
        "VM.Audit": "GET qemu",
        "VM.Clone": "POST clone",
        "VM.Config.CPU": "PUT config: cores",
        "VM.Config.Disk": "POST qemu: boot, PUT resize",
        "VM.Config.HWType": "POST qemu: scsihw, serial0, rng0",
        "VM.Config.Memory": "PUT config: memory",
        "VM.Config.Network": "PUT config: net0, ipconfig0, sshkeys",
        "VM.Config.Options": "PUT config: name, tags, and the note of who uses the lab",
        "VM.PowerMgmt": "POST status/start and status/stop",
    },
    "DaskLabContainers": CONTAINER_PRIVILEGES,
    "DaskLabDisks": {
        "Datastore.AllocateSpace": "POST qemu and clone: disks",
        "Datastore.Audit": "GET storage",
    },
    "DaskLabImage": {
        "Datastore.Allocate": "DELETE content: destroy removes the image",
        "Datastore.AllocateTemplate": "POST upload and download-url: the image",
        "Datastore.Audit": "GET content",
    },
    "DaskLabBridge": {"SDN.Use": "PUT config: a NIC on this bridge"},
    "DaskLabZone": {
        "SDN.Allocate": "POST and DELETE sdn/zones and sdn/vnets: of a lab on several nodes",
        "SDN.Use": "PUT config: a NIC on its vnet",
    },
    "DaskLabApply": {"SDN.Allocate": "POST sdn/zones, PUT sdn: create a zone, and bring it up on the nodes"},
    "DaskLabNetwork": {"Sys.Modify": "POST and PUT network: the lab's own bridge"},
    "DaskLabDownload": {"Sys.AccessNetwork": "POST download-url: the node downloads the image"},
    "DaskLabLook": {"Sys.Audit": "GET apt/versions: doctor checks for ifupdown2"},
}


@dataclass(frozen=True, order=True)
class Need:
    """Grants a role of the table above on a path, with ``propagate`` also on all paths below it."""

    path: str
    role: str
    propagate: bool = True

    @property
    def privileges(self) -> Mapping[str, str]:
        """The role's privileges -> the call that needs each."""
        return ROLES[self.role]


def needed(
    pool: str,
    nodes: Iterable[str],
    storage: str,
    image_storage: str,
    bridges: Iterable[str],
    *,
    download: bool = True,
    network: bool = True,
    zone: str = "",
    kinds: Collection[GuestKind] = ("vm", "container"),
) -> list[Need]:
    """Return the needs of provisioning.

    Args:
        pool: the pool of the guests.
        nodes: the nodes of the guests.
        storage: the storage for disks.
        image_storage: the storage for images.
        bridges: the bridges of the guests' NICs.
        download: the nodes download the image themselves.
        network: the lab creates its bridge on the node.
        zone: the SDN zone of a lab on several nodes, in which the lab creates a vnet.
        kinds: the kinds of its guests; containers alone need less.
    """
    needs = {
        Need(f"/pool/{pool}", "DaskLabMachines" if "vm" in kinds else "DaskLabContainers"),
        Need(f"/storage/{storage}", "DaskLabDisks"),
        Need(f"/storage/{image_storage}", "DaskLabImage"),
        *(Need(f"/sdn/zones/localnetwork/{bridge}", "DaskLabBridge") for bridge in bridges),
    }
    if zone:
        needs |= {Need("/sdn", "DaskLabApply", False), Need("/sdn/zones", "DaskLabApply", False)}
        needs.add(Need(f"/sdn/zones/{zone}", "DaskLabZone"))
    roles = ["DaskLabDownload"] * download + ["DaskLabNetwork"] * network
    roles += ["DaskLabLook"] * (network or bool(zone))
    return sorted(needs | {Need(f"/nodes/{node}", role) for node in nodes for role in roles})


def lacking(need: Need, granted: Mapping[str, int]) -> list[str]:
    """Return the privileges of ``need`` that are not in ``granted`` (from ``GET /access/permissions``)."""
    return [privilege for privilege in need.privileges if privilege not in granted]


def account_lines(user: str, token_id: str, pool: str) -> list[str]:
    """Return commands for root on a node that create missing user, token and pool. They may be run again."""
    name = quote(user)
    token = f"{name} {quote(token_id)} --privsep 1"
    return [
        _either(f"pveum user modify {name} --enable 1", f"pveum user add {name} --enable 1"),
        _either(f"pveum user token modify {token}", f"pveum user token add {token}"),
        pool_line(pool),
    ]


def pool_line(pool: str) -> str:
    """Return the command that creates a missing pool."""
    comment = "--comment 'machines of a Dask lab'"
    return _either(f"pveum pool modify {quote(pool)} {comment}", f"pveum pool add {quote(pool)} {comment}")


def grant_lines(needs: Iterable[Need], user: str, token_id: str) -> list[str]:
    """Return commands for root on a node that grant ``needs`` to user and token. They may be run again.

    A token with privilege separation has the intersection of its own and its user's privileges.
    """
    needs = sorted(needs)
    roles = {need.role: f'{need.role} --privs "{" ".join(need.privileges)}"' for need in needs}
    token = f"{user}!{token_id}"
    grantees = f"--users {quote(user)} --tokens {quote(token)}"
    propagation = {True: "", False: " --propagate 0"}
    return [
        *(_either(f"pveum role modify {role}", f"pveum role add {role}") for role in roles.values()),
        *(
            f"pveum acl modify {quote(n.path)} {grantees} --roles {n.role}{propagation[n.propagate]}"
            for n in needs
        ),
    ]


def _either(change: str, make: str) -> str:
    return f"{change} 2>/dev/null || {make}"
