"""Which privileges the lab's token needs on a Proxmox VE, and the ``pveum`` lines that give them.

Least privilege: everything on the lab's own pool, its storages and its bridges; the node
only where the lab's bridge has to be made. PVE 9 split ``VM.Monitor`` into
``VM.GuestAgent.*``; asking one version for the other's privilege is an error there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MACHINE = [
    *("VM.Allocate", "VM.Audit", "VM.Clone", "VM.PowerMgmt"),
    *("VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network"),
    *("VM.Config.HWType", "VM.Config.Options", "VM.Config.Cloudinit"),
]
AGENT = {8: ["VM.Monitor"], 9: ["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]}
STORAGE = ["Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"]
NODE = ["Sys.AccessNetwork", "Sys.Audit", "Sys.Modify"]
Needs = dict[str, list[str]]


def needed(pool: str, node: str, storages: Iterable[str], bridges: Iterable[str], major: int) -> Needs:
    """Return ``{path: privileges}`` that provisioning takes on Proxmox VE ``major``."""
    agent = AGENT[9] if major >= 9 else AGENT[8]
    return {
        f"/pool/{pool}": sorted([*MACHINE, *agent]),
        **{f"/storage/{s}": STORAGE for s in sorted(set(storages))},
        **{f"/sdn/zones/localnetwork/{b}": ["SDN.Use"] for b in sorted(set(bridges))},
        f"/nodes/{node}": NODE,
    }


def missing(needs: Needs, granted: Mapping[str, Mapping[str, int]]) -> Needs:
    """Return what of ``needs`` is not in ``granted`` (the answer of ``GET /access/permissions`` per path)."""
    lacking = {
        path: [p for p in privileges if p not in granted.get(path, {})] for path, privileges in needs.items()
    }
    return {path: privileges for path, privileges in lacking.items() if privileges}


def pveum_lines(lacking: Needs, user: str, token_id: str) -> list[str]:
    """Return the commands, for root on a node, that grant ``lacking`` to the user and to its token.

    A token with privilege separation has the intersection of both, so both are granted.
    """
    lines: list[str] = []
    for number, (path, privileges) in enumerate(sorted(lacking.items())):
        role = f"DaskLab{number}"
        lines.append(f'pveum role add {role} --privs "{" ".join(privileges)}"')
        lines.append(f"pveum acl modify {path} --users {user} --roles {role}")
        lines.append(f"pveum acl modify {path} --tokens '{user}!{token_id}' --roles {role}")
    return lines
