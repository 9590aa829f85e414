"""Read what an endpoint has that matters to one lab. Changes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dasklab.errors import LabError, did_you_mean
from dasklab.machines.endpoint.api_errors import CallError, ForbiddenError
from dasklab.machines.endpoint.guest_kinds import BY_PATH, KINDS
from dasklab.machines.endpoint.observed import (
    Observed,
    ObservedBridge,
    ObservedGuest,
    ObservedNode,
    ObservedSdn,
)
from dasklab.machines.endpoint.proxmox import LOCK_WAIT_S, Pve, Resource
from dasklab.machines.inventory.topology import Lab

# Types of this token's tasks that have no VMID: image transfers and network reloads.
OWN_TASKS = {"imgcopy", "download", "imgdel", "srvreload", "reloadnetworkall"}
IMAGES = {kind.images for kind in KINDS.values()}
DOWN_HINT = "start it again; or, if nothing of this host is on it, choose another vm_node in the inventory"
Record = Mapping[str, Any]


def observe(pve: Pve, lab: Lab, *, claim: bool = False) -> Observed:
    """Return what the endpoint has that matters to ``lab``. Waits for operations that are still running.

    The endpoint is asked whether each unused VMID is really free, because a guest that this token may not see
    could have it: somebody else's, or one of the lab's whose creation broke off before it was in the pool.

    Args:
        pve: the endpoint.
        lab: the requested lab.
        claim: prepare to create machines: the pool must exist.

    Raises:
        LabError: the endpoint cannot be reached, refuses a call, or lacks a node or the pool.
    """
    version = pve.version()
    online = check_nodes(pve, lab.nodes)
    vmids = {*lab.templates, *(guest.vmid for guest in lab.guests)}
    for node in lab.nodes:
        _wait_for_tasks(pve, node, vmids)
    relevant = [r for r in _guest_records(pve, lab) if int(r["vmid"]) in vmids or lab.name in _tags(r)]
    _refuse_unreachable(relevant, online)
    guests = {guest.vmid: guest for guest in pve.map(lambda record: _guest(pve, record), relevant)}
    unused = sorted(vmids - guests.keys())
    if claim and unused and not has_pool(pve, lab.pool):
        raise LabError(
            f"{pve.endpoint.url} has no pool {lab.pool!r}",
            f"as root on a node: pveum pool add {lab.pool}; 'dasklab doctor' checks what else is missing",
        )
    hidden = pve.map(lambda vmid: _is_hidden(pve, vmid), unused)
    sdn = _sdn(pve)
    zone = lab.zone
    several = len(lab.nodes) > 1 or zone in {*sdn.zones, *sdn.waiting}
    return Observed(
        version=version,
        guests=guests,
        nodes={node: _node(pve, lab, node) for node in (online if several else lab.nodes)},
        sdn=sdn,
        hidden_vmids=frozenset(vmid for vmid, is_hidden in zip(unused, hidden, strict=True) if is_hidden),
    )


def check_nodes(pve: Pve, nodes: Iterable[str]) -> list[str]:
    """Check that these nodes exist and are online. Return all nodes that are online, these first.

    Raises:
        LabError: a node does not exist or is down.
    """
    states = {record["node"]: record.get("status", "unknown") for record in pve.api.nodes.get()}
    for node in nodes:
        if node not in states:
            raise LabError(
                f"{pve.endpoint.url} has no node {node!r}; there are {', '.join(sorted(states))}"
                f"{did_you_mean(node, states)}",
                "correct proxmox.node, or a host's vm_node, in the inventory",
            )
        if states[node] == "offline":
            raise LabError(f"node {node} is down, and hosts of the lab are on it", DOWN_HINT)
    online = [node for node, state in sorted(states.items()) if state != "offline"]
    return list(dict.fromkeys([*nodes, *online]))


def _refuse_unreachable(records: list[Record], online: list[str]) -> None:
    for record in records:
        if record["node"] not in online:
            raise LabError(f"VMID {record['vmid']} is on node {record['node']}, which is down", DOWN_HINT)


def _node(pve: Pve, lab: Lab, node: str) -> ObservedNode:
    api = pve.api.nodes(node)
    network, zones, rows = api.network.document(), api.sdn.zones.get(), api.storage.get()
    storages = _contents(rows)
    return ObservedNode(
        images=_images(pve, lab, node, storages.get(lab.image_storage, frozenset())),
        bridges=observed_bridges(network["data"]),
        storages=storages,
        pending=pending_changes(network.get("changes") or ""),
        shared=frozenset(row["storage"] for row in rows if row.get("shared")),
        zones=frozenset(row["zone"] for row in zones if row.get("status") == "available"),
        address=_address(network["data"], lab),
    )


def _address(network: list[Record], lab: Lab) -> str:
    """Return the address at which other nodes reach this one: of the gateway's interface or management."""
    management = {guest.nics[0].bridge for guest in lab.guests}
    rows = [row for row in network if row.get("address") and row.get("gateway")]
    rows += [row for row in network if row.get("address") and row["iface"] in management]
    return str(rows[0]["address"]) if rows else ""


def _sdn(pve: Pve) -> ObservedSdn:
    """Return the zones and vnets that this token may see."""
    areas = ("zones", "vnets")
    zones, vnets = pve.map(lambda area: pve.api.cluster.sdn(area).get(pending=1), areas)
    changing = [(row["zone"], row) for row in zones]
    changing += [(row.get("zone") or row["pending"]["zone"], row) for row in vnets]
    return ObservedSdn(
        zones={row["zone"]: _configured(row) for row in zones if row.get("state") != "deleted"},
        vnets={row["vnet"]: _configured(row) for row in vnets if row.get("state") != "deleted"},
        waiting=frozenset(zone for zone, row in changing if row.get("state")),
    )


def _configured(row: Record) -> dict[str, Any]:
    merged = {**row, **row.get("pending", {})}
    return {key: value for key, value in merged.items() if value != "deleted" and key != "pending"}


def has_pool(pve: Pve, pool: str) -> bool:
    """Return whether a pool exists. True if the token may not look; calls that need the pool will fail."""
    try:
        pve.api.pools.get(poolid=pool)
    except ForbiddenError:
        return True
    except CallError as error:
        if "does not exist" not in error.cause:
            raise
        return False
    return True


def observed_storages(pve: Pve, node: str) -> dict[str, frozenset[str]]:
    """Return the node's storages, each with the content types it allows."""
    return _contents(pve.api.nodes(node).storage.get())


def _contents(rows: list[Record]) -> dict[str, frozenset[str]]:
    return {row["storage"]: frozenset(row["content"].split(",")) for row in rows}


def observed_bridges(network: list[Record]) -> dict[str, ObservedBridge]:
    """Return the bridges in the rows of ``GET network``."""
    return {
        i["iface"]: ObservedBridge((i.get("comments") or "").strip(), bool(i.get("active")))
        for i in network
        if i["type"] == "bridge"
    }


def _wait_for_tasks(pve: Pve, node: str, vmids: set[int]) -> None:
    """Wait for tasks of an interrupted run. A guest that is being cloned is in no pool yet, so invisible."""
    ids = {str(vmid) for vmid in vmids}
    deadline = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < deadline:
        tasks = pve.api.nodes(node).tasks.get(source="active")
        active = [t for t in tasks if t.get("status") == "RUNNING"]
        if not [t for t in active if t.get("id") in ids or _is_own(t, pve)]:
            return
        time.sleep(0.5)


def _is_own(task: Record, pve: Pve) -> bool:
    caller = f"{task.get('user')}!{task['tokenid']}" if "tokenid" in task else task.get("user")
    return task.get("type") in OWN_TASKS and caller == pve.endpoint.token


def _guest_records(pve: Pve, lab: Lab) -> list[Record]:
    """Return all guests. The cluster's list is seconds old, so each node of the lab provides its own list."""
    nodes = sorted(lab.nodes)
    cluster = [r for r in pve.api.cluster.resources.get(type="vm") if r.get("type") in BY_PATH]
    elsewhere = [r for r in cluster if r["node"] not in nodes]
    lists = [(node, api) for node in nodes for api in BY_PATH]
    answers = pve.map(lambda where: pve.api.nodes(where[0])(where[1]).get(), lists)
    by_list = zip(lists, answers, strict=True)
    return elsewhere + [{**r, "node": node, "type": api} for (node, api), rows in by_list for r in rows]


def _tags(record: Record) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[;, ]+", record.get("tags") or "")))


def _guest(pve: Pve, record: Record) -> ObservedGuest:
    vmid, node = int(record["vmid"]), record["node"]
    rows = _rows_unlocked(pve.api.nodes(node)(record["type"])(vmid).pending)
    config = None if rows is None else _config(rows)
    return ObservedGuest(
        vmid=vmid,
        node=node,
        name=str(record.get("name", vmid)),
        status=str(record["status"]),
        tags=_tags(config or record),
        config=config,
        pending=any("pending" in row or "delete" in row for row in rows or ()),
        kind=BY_PATH[record["type"]],
        uptime_s=int(record.get("uptime", 0)),
    )


def _config(rows: list[Record]) -> dict[str, str]:
    """Return the configuration that the next start will use, from the present and the pending values."""
    remaining = [row for row in rows if "delete" not in row]
    return {row["key"]: str(row.get("pending", row.get("value", ""))) for row in remaining}


def _rows_unlocked(pending: Resource) -> list[Record] | None:
    """Wait until a guest is unlocked; return its present and pending settings, None if they are forbidden."""
    deadline = time.monotonic() + LOCK_WAIT_S / 4
    while True:
        try:
            rows: list[Record] = pending.get()
        except ForbiddenError:
            return None
        if not [row for row in rows if row["key"] == "lock"] or time.monotonic() > deadline:
            return rows
        time.sleep(1)


def _is_hidden(pve: Pve, vmid: int) -> bool:
    """Return whether a guest that this token may not see has the VMID."""
    try:
        pve.api.cluster.nextid.get(vmid=vmid)
    except CallError as error:
        if "already exists" in error.cause:
            return True
        raise
    return False


def _images(pve: Pve, lab: Lab, node: str, allowed: frozenset[str]) -> dict[str, str]:
    """Return the images on the lab's image storage: name -> content type."""
    contents = sorted(IMAGES & allowed)
    storage = lab.image_storage
    answers = pve.map(
        lambda content: pve.api.nodes(node).storage(storage).content.get(content=content), contents
    )
    volumes = zip(contents, answers, strict=True)
    return {volume["volid"].rpartition("/")[2]: content for content, rows in volumes for volume in rows}


def pending_changes(diff: str) -> Mapping[str, tuple[str, ...]]:
    """Parse the unified diff with which a node describes network changes that are not applied yet.

    Blank lines, and comments outside of a stanza, are ignored: applying them changes nothing.

    Returns:
        Interface -> its changed lines, each with ``+`` or ``-``.
    """
    changes: dict[str, tuple[str, ...]] = {}
    interface = ""
    for line in diff.splitlines():
        if line.startswith(("+++", "---", "@@")):
            interface = "" if line.startswith("@@") else interface
            continue
        sign, words = line[:1], line[1:].split()
        if words and words[0] in ("auto", "iface", "allow-hotplug"):
            interface = words[1]
        if sign in ("+", "-") and words and (interface or not words[0].startswith("#")):
            changes[interface] = (*changes.get(interface, ()), sign + " ".join(words))
    return changes
