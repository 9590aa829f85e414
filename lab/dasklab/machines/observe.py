"""Looks at an endpoint: what it has of what matters to one lab. Changes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dasklab.errors import LabError
from dasklab.machines import privileges
from dasklab.machines.answers import CallError, ForbiddenError
from dasklab.machines.bridges import pending_changes
from dasklab.machines.kinds import BY_API, KINDS
from dasklab.machines.observed import Observed, SeenBridge, SeenGuest, SeenNode, SeenSdn
from dasklab.machines.proxmox import LOCK_WAIT_S, Pve, Resource
from dasklab.machines.topology import Lab

# Tasks of this token that say no VMID: an image on its way, a reload of the network.
OWN_TASKS = {"imgcopy", "download", "imgdel", "srvreload", "reloadnetworkall"}
IMAGES = {kind.IMAGES for kind in KINDS.values()}
DOWN_HINT = "bring it back; or, for a machine without a trace there, choose another vm_node in the inventory"
Record = Mapping[str, Any]


def observe(pve: Pve, lab: Lab, *, claim: bool = False) -> Observed:
    """Return what the endpoint has of what matters to ``lab``, once operations under way on it have ended.

    With ``claim``, where machines are yet to be made, the pool has to be there, and each wanted VMID that
    looks free is asked for by name: a machine that this token may not see may have it.

    Raises:
        LabError: the endpoint cannot be reached, refuses, or lacks a node or the pool.
    """
    version = pve.version()
    online = check_nodes(pve, lab.nodes)
    wanted = {*lab.templates, *(guest.vmid for guest in lab.guests)}
    for node in lab.nodes:
        _settle(pve, node, wanted)
    relevant = [r for r in _records(pve, lab) if int(r["vmid"]) in wanted or lab.name in _tags(r)]
    _refuse_unreachable(relevant, online)
    guests = {guest.vmid: guest for guest in pve.map(lambda record: _seen_guest(pve, record), relevant)}
    free = sorted(wanted - guests.keys()) if claim else []
    if free and not has_pool(pve, lab.pool):
        hint = (
            f"as root on a node: pveum pool add {lab.pool}; 'dasklab doctor' looks for what else is missing"
        )
        raise LabError(f"{pve.endpoint.url} has no pool {lab.pool!r}", hint)
    taken = pve.map(lambda vmid: _is_taken(pve, vmid), free)
    sdn = _seen_sdn(pve)
    zone = privileges.zone(lab.name)
    several = len(lab.nodes) > 1 or zone in {*sdn.zones, *sdn.waiting}
    return Observed(
        version=version,
        guests=guests,
        nodes={node: _seen_node(pve, lab, node) for node in (online if several else lab.nodes)},
        sdn=sdn,
        taken=frozenset(vmid for vmid, is_taken in zip(free, taken, strict=True) if is_taken),
    )


def check_nodes(pve: Pve, nodes: Iterable[str]) -> list[str]:
    """Check that there are nodes of these names, and that they answer; returns all that do, these first.

    Raises:
        LabError: naming those that there are, or those that are down.
    """
    states = {record["node"]: record.get("status", "unknown") for record in pve.api.nodes.get()}
    for node in nodes:
        if node not in states:
            raise LabError(
                f"{pve.endpoint.url} has no node {node!r}; there are {', '.join(sorted(states))}",
                "write the right one as proxmox.node, or as a host's vm_node, in the inventory",
            )
        if states[node] == "offline":
            raise LabError(f"node {node} is down, and hosts of the lab are on it", DOWN_HINT)
    up = [node for node, state in sorted(states.items()) if state != "offline"]
    return list(dict.fromkeys([*nodes, *up]))


def _refuse_unreachable(records: list[Record], online: list[str]) -> None:
    for record in records:
        if record["node"] not in online:
            raise LabError(f"VMID {record['vmid']} is on node {record['node']}, which is down", DOWN_HINT)


def _seen_node(pve: Pve, lab: Lab, node: str) -> SeenNode:
    api = pve.api.nodes(node)
    network, zones, rows = api.network.document(), api.sdn.zones.get(), api.storage.get()
    storages = _contents(rows)
    return SeenNode(
        images=_images(pve, lab, node, storages.get(lab.image_storage, frozenset())),
        bridges=seen_bridges(network["data"]),
        storages=storages,
        pending=pending_changes(network.get("changes") or ""),
        shared=frozenset(row["storage"] for row in rows if row.get("shared")),
        zones=frozenset(row["zone"] for row in zones if row.get("status") == "available"),
        address=_address(network["data"], lab),
    )


def _address(network: list[Record], lab: Lab) -> str:
    """Where other nodes reach this one: at the interface with the gateway, or on the management bridge."""
    management = {guest.nics[0].bridge for guest in lab.guests}
    found = [row for row in network if row.get("address") and row.get("gateway")]
    found += [row for row in network if row.get("address") and row["iface"] in management]
    return str(found[0]["address"]) if found else ""


def _seen_sdn(pve: Pve) -> SeenSdn:
    """The zones and vnets that the token may see: its own, and all of who may change everything."""
    areas = ("zones", "vnets")
    zones, vnets = pve.map(lambda area: pve.api.cluster.sdn(area).get(pending=1), areas)
    changing = [(row["zone"], row) for row in zones]
    changing += [(row.get("zone") or row["pending"]["zone"], row) for row in vnets]
    return SeenSdn(
        zones={row["zone"]: _configured(row) for row in zones if row.get("state") != "deleted"},
        vnets={row["vnet"]: _configured(row) for row in vnets if row.get("state") != "deleted"},
        waiting=frozenset(zone for zone, row in changing if row.get("state")),
    )


def _configured(row: Record) -> dict[str, Any]:
    merged = {**row, **row.get("pending", {})}
    return {key: value for key, value in merged.items() if value != "deleted" and key != "pending"}


def has_pool(pve: Pve, pool: str) -> bool:
    """Is there a pool of that name? Where one may not look, the calls that need it will tell."""
    try:
        pve.api.pools.get(poolid=pool)
    except ForbiddenError:
        return True
    except CallError as error:
        if "does not exist" not in error.cause:
            raise
        return False
    return True


def seen_storages(pve: Pve, node: str) -> dict[str, frozenset[str]]:
    """The node's storages and the content that each keeps."""
    return _contents(pve.api.nodes(node).storage.get())


def _contents(rows: list[Record]) -> dict[str, frozenset[str]]:
    return {row["storage"]: frozenset(row["content"].split(",")) for row in rows}


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
        tasks = pve.api.nodes(node).tasks.get(source="active")
        active = [t for t in tasks if t.get("status") == "RUNNING"]
        if not [t for t in active if t.get("id") in ids or _is_own(t, pve)]:
            return
        time.sleep(0.5)


def _is_own(task: Record, pve: Pve) -> bool:
    asker = f"{task.get('user')}!{task['tokenid']}" if "tokenid" in task else task.get("user")
    return task.get("type") in OWN_TASKS and asker == pve.endpoint.token


def _records(pve: Pve, lab: Lab) -> list[Record]:
    """Cluster resources lag by seconds; each node's own lists are live, so they are what counts."""
    nodes = sorted(lab.nodes)
    everywhere = [r for r in pve.api.cluster.resources.get(type="vm") if r.get("type") in BY_API]
    elsewhere = [r for r in everywhere if r["node"] not in nodes]
    lists = [(node, api) for node in nodes for api in BY_API]
    answers = pve.map(lambda where: pve.api.nodes(where[0])(where[1]).get(), lists)
    here = zip(lists, answers, strict=True)
    return elsewhere + [{**r, "node": node, "type": api} for (node, api), rows in here for r in rows]


def _tags(record: Record) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[;, ]+", record.get("tags") or "")))


def _seen_guest(pve: Pve, record: Record) -> SeenGuest:
    vmid, node = int(record["vmid"]), record["node"]
    rows = _rows_unlocked(pve.api.nodes(node)(record["type"])(vmid).pending)
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
        uptime_s=int(record.get("uptime", 0)),
    )


def _config(rows: list[Record]) -> dict[str, str]:
    """The configuration as it will be after the next start, from what is and what waits."""
    kept = [row for row in rows if "delete" not in row]
    return {row["key"]: str(row.get("pending", row.get("value", ""))) for row in kept}


def _rows_unlocked(pending: Resource) -> list[Record] | None:
    """Return the VM's settings, present and pending, once no lock is on it; ``None``: no right to."""
    deadline = time.monotonic() + LOCK_WAIT_S / 4
    while True:
        try:
            rows: list[Record] = pending.get()
        except ForbiddenError:
            return None
        if not [row for row in rows if row["key"] == "lock"] or time.monotonic() > deadline:
            return rows
        time.sleep(1)


def _is_taken(pve: Pve, vmid: int) -> bool:
    try:
        pve.api.cluster.nextid.get(vmid=vmid)
    except CallError as error:
        if "already exists" in error.cause:
            return True
        raise
    return False


def _images(pve: Pve, lab: Lab, node: str, kept: frozenset[str]) -> dict[str, str]:
    contents = sorted(IMAGES & kept)
    storage = lab.image_storage
    answers = pve.map(
        lambda content: pve.api.nodes(node).storage(storage).content.get(content=content), contents
    )
    found = zip(contents, answers, strict=True)
    return {volume["volid"].rpartition("/")[2]: content for content, rows in found for volume in rows}
