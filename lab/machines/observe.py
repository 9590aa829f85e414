"""Looks at an endpoint: what it has of what matters to one lab. Changes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from lab.errors import LabError
from lab.machines.answers import CallError, ForbiddenError
from lab.machines.bridges import pending_changes
from lab.machines.kinds import BY_API, KINDS
from lab.machines.observed import Observed, SeenBridge, SeenGuest
from lab.machines.proxmox import LOCK_WAIT_S, Pve
from lab.machines.topology import Lab

# Tasks of this token that say no VMID: an image on its way, a reload of the network.
OWN_TASKS = {"imgcopy", "download", "imgdel", "srvreload"}
IMAGES = {kind.IMAGES for kind in KINDS.values()}
Record = Mapping[str, Any]


def observe(pve: Pve, lab: Lab, *, claim: bool = False) -> Observed:
    """Return what the endpoint has of what matters to ``lab``, once operations under way on it have ended.

    With ``claim``, where machines are yet to be made, the pool has to be there, and each wanted VMID that
    looks free is asked for by name: a machine that this token may not see may have it.

    Raises:
        LabError: the endpoint cannot be reached, refuses, or lacks the node or the pool.
    """
    version = pve.version()
    check_node(pve, lab.node)
    wanted = {lab.template_vmid, *(guest.vmid for guest in lab.guests)}
    _settle(pve, lab.node, wanted)
    relevant = [r for r in _records(pve, lab) if int(r["vmid"]) in wanted or lab.name in _tags(r)]
    guests = {
        guest.vmid: guest for guest in pve.side_by_side(lambda record: _seen_guest(pve, record), relevant)
    }
    free = sorted(wanted - guests.keys()) if claim else []
    if free and not has_pool(pve, lab.pool):
        hint = (
            f"as root on a node: pveum pool add {lab.pool}; 'dasklab doctor' looks for what else is missing"
        )
        raise LabError(f"{pve.endpoint.url} has no pool {lab.pool!r}", hint)
    taken = pve.side_by_side(lambda vmid: _is_taken(pve, vmid), free)
    network = pve.document(f"nodes/{lab.node}/network")
    storages = seen_storages(pve, lab.node)
    return Observed(
        version=version,
        guests=guests,
        images=_images(pve, lab, storages.get(lab.image_storage, frozenset())),
        bridges=seen_bridges(network["data"]),
        storages=storages,
        pending=pending_changes(network.get("changes") or ""),
        taken=frozenset(vmid for vmid, is_taken in zip(free, taken, strict=True) if is_taken),
    )


def check_node(pve: Pve, node: str) -> None:
    """Check that there is a node of that name.

    Raises:
        LabError: naming those that there are.
    """
    there = sorted(record["node"] for record in pve.get("nodes"))
    if node not in there:
        raise LabError(
            f"{pve.endpoint.url} has no node {node!r}; there are {', '.join(there)}",
            "write the right one as proxmox.node, or as the host of the group hypervisors, in the inventory",
        )


def has_pool(pve: Pve, pool: str) -> bool:
    """Is there a pool of that name? Where one may not look, the calls that need it will tell."""
    try:
        pve.get("pools", poolid=pool)
    except ForbiddenError:
        return True
    except CallError as error:
        if "does not exist" not in error.cause:
            raise
        return False
    return True


def seen_storages(pve: Pve, node: str) -> dict[str, frozenset[str]]:
    """The node's storages and the content that each keeps."""
    return {s["storage"]: frozenset(s["content"].split(",")) for s in pve.get(f"nodes/{node}/storage")}


def seen_bridges(network: list[Record]) -> dict[str, SeenBridge]:
    """The bridges of ``GET network``."""
    return {
        i["iface"]: SeenBridge((i.get("comments") or "").strip(), bool(i.get("active")))
        for i in network
        if i["type"] == "bridge"
    }


def _settle(pve: Pve, node: str, vmids: set[int]) -> None:
    """Wait for tasks that an interrupted run left going: a clone under way is in no pool yet, so unseen."""
    ids = {str(vmid) for vmid in vmids}
    deadline = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < deadline:
        active = [t for t in pve.get(f"nodes/{node}/tasks", source="active") if t.get("status") == "RUNNING"]
        if not [t for t in active if t.get("id") in ids or _is_own(t, pve)]:
            return
        time.sleep(0.5)


def _is_own(task: Record, pve: Pve) -> bool:
    asker = f"{task.get('user')}!{task['tokenid']}" if "tokenid" in task else task.get("user")
    return task.get("type") in OWN_TASKS and asker == pve.endpoint.token


def _records(pve: Pve, lab: Lab) -> list[Record]:
    """Cluster resources lag by seconds; each node's own lists are live, so they are what counts."""
    nodes = sorted({lab.node, *(guest.node for guest in lab.guests)})
    everywhere = [r for r in pve.get("cluster/resources", type="vm") if r.get("type") in BY_API]
    elsewhere = [r for r in everywhere if r["node"] not in nodes]
    lists = [(node, api) for node in nodes for api in BY_API]
    answers = pve.side_by_side(lambda where: pve.get(f"nodes/{where[0]}/{where[1]}"), lists)
    here = zip(lists, answers, strict=True)
    return elsewhere + [{**r, "node": node, "type": api} for (node, api), rows in here for r in rows]


def _tags(record: Record) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[;, ]+", record.get("tags") or "")))


def _seen_guest(pve: Pve, record: Record) -> SeenGuest:
    vmid, node = int(record["vmid"]), record["node"]
    rows = _rows_unlocked(pve, f"nodes/{node}/{record['type']}/{vmid}/pending")
    config = None if rows is None else _config(rows)
    return SeenGuest(
        vmid=vmid,
        node=node,
        name=str(record.get("name", vmid)),
        status=str(record["status"]),
        tags=_tags(config or record),
        config=config,
        pending=any("pending" in row or "delete" in row for row in rows or ()),
        kind=BY_API[record["type"]],
    )


def _config(rows: list[Record]) -> dict[str, str]:
    """The configuration as it will be after the next start, from what is and what waits."""
    kept = [row for row in rows if "delete" not in row]
    return {row["key"]: str(row.get("pending", row.get("value", ""))) for row in kept}


def _rows_unlocked(pve: Pve, path: str) -> list[Record] | None:
    """Return the VM's settings, present and pending, once no lock is on it; ``None``: no right to."""
    deadline = time.monotonic() + LOCK_WAIT_S / 4
    while True:
        try:
            rows: list[Record] = pve.get(path)
        except ForbiddenError:
            return None
        if not [row for row in rows if row["key"] == "lock"] or time.monotonic() > deadline:
            return rows
        time.sleep(1)


def _is_taken(pve: Pve, vmid: int) -> bool:
    try:
        pve.get("cluster/nextid", vmid=vmid)
    except CallError as error:
        if "already exists" in error.cause:
            return True
        raise
    return False


def _images(pve: Pve, lab: Lab, kept: frozenset[str]) -> dict[str, str]:
    path, contents = f"nodes/{lab.node}/storage/{lab.image_storage}/content", sorted(IMAGES & kept)
    answers = pve.side_by_side(lambda content: pve.get(path, content=content), contents)
    found = zip(contents, answers, strict=True)
    return {volume["volid"].rpartition("/")[2]: content for content, rows in found for volume in rows}
