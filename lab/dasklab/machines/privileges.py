"""Which privileges the lab's token needs on a Proxmox VE, why, and the ``pveum`` lines that give them.

Least privilege: everything on the lab's own pool, its storages and its bridges; the node only where its
network has to change or it has to fetch an image. A role's name says what it is for and its privileges are
always the same, so the lines may be pasted again, and two labs may share the roles.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
        "VM.Config.Options": "PUT config: name, tags",
        "VM.PowerMgmt": "POST status/start and status/stop",
    },
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
        "SDN.Allocate": "POST and DELETE sdn/zones and sdn/vnets: the lab's own, of several nodes",
        "SDN.Use": "PUT config: a NIC on its vnet",
    },
    "DaskLabApply": {"SDN.Allocate": "POST sdn/zones, PUT sdn: a zone is made, and brought up on the nodes"},
    "DaskLabNetwork": {"Sys.Modify": "POST and PUT network: the lab's own bridge"},
    "DaskLabDownload": {"Sys.AccessNetwork": "POST download-url: the node fetches the image"},
    "DaskLabLook": {"Sys.Audit": "GET apt/versions: doctor sees whether ifupdown2 is there"},
}


@dataclass(frozen=True, order=True)
class Need:
    """A role of the table above on a path; it counts below that too unless it does not ``propagate``."""

    path: str
    role: str
    propagate: bool = True

    @property
    def privileges(self) -> Mapping[str, str]:
        """Privilege -> the call that needs it."""
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
) -> list[Need]:
    """Return what provisioning takes.

    With ``download`` the nodes fetch the image themselves, with ``network`` the lab makes its bridge itself;
    where it is on several nodes that is a vnet of ``zone``.
    """
    needs = {
        Need(f"/pool/{pool}", "DaskLabMachines"),
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


def zone(lab: str) -> str:
    """The SDN zone of a lab on several nodes: its name, made to fit the eight letters and digits of an id."""
    if re.fullmatch(r"[a-z][a-z0-9]{1,7}", lab):
        return lab
    return f"l{hashlib.sha256(lab.encode()).hexdigest()[:7]}"


def lacking(need: Need, granted: Mapping[str, int]) -> list[str]:
    """The privileges of ``need`` that are not in ``granted`` (``GET /access/permissions`` of its path)."""
    return [privilege for privilege in need.privileges if privilege not in granted]


def account_lines(user: str, token_id: str, pool: str) -> list[str]:
    """Lines for root on a node that make user, token and pool where they are missing; may be pasted again."""
    token = f"{user} {token_id} --privsep 1"
    return [
        _either(f"pveum user modify {user} --enable 1", f"pveum user add {user} --enable 1"),
        _either(f"pveum user token modify {token}", f"pveum user token add {token}"),
        pool_line(pool),
    ]


def pool_line(pool: str) -> str:
    """The line that makes the pool where it is missing."""
    comment = "--comment 'machines of a Dask lab'"
    return _either(f"pveum pool modify {pool} {comment}", f"pveum pool add {pool} {comment}")


def grant_lines(needs: Iterable[Need], user: str, token_id: str) -> list[str]:
    """Lines for root on a node that grant ``needs`` to the user and to its token; may be pasted again.

    A token with privilege separation has the intersection of both, so both are granted.
    """
    needs = sorted(needs)
    roles = {need.role: f'{need.role} --privs "{" ".join(need.privileges)}"' for need in needs}
    who = f"--users {user} --tokens '{user}!{token_id}'"
    narrow = {True: "", False: " --propagate 0"}
    return [
        *(_either(f"pveum role modify {role}", f"pveum role add {role}") for role in roles.values()),
        *(f"pveum acl modify {n.path} {who} --roles {n.role}{narrow[n.propagate]}" for n in needs),
    ]


def _either(change: str, make: str) -> str:
    return f"{change} 2>/dev/null || {make}"
