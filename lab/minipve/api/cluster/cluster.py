"""The whole cluster: version, free VMIDs, nodes, the list of all resources."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import parameter_error
from minipve.config import volume_ids
from minipve.guests.rows import guest_resource
from minipve.guests.vm import summary
from minipve.node import node as node_module
from minipve.node.call import Call
from minipve.node.node import Node

_FIRST, _LAST = 100, 1_000_000


@route("GET", "/version")
def version(call: Call) -> dict[str, str]:
    """Return the PVE version that minipve implements."""
    return node_module.VERSION


@route("GET", "/cluster/nextid")
def nextid(call: Call) -> str:
    """Return the lowest free VMID as a string, or the requested one if it is free."""
    used = set(call.node.vmids())
    requested = call.get("vmid")
    if requested in used:
        raise parameter_error(vmid=f"VM {requested} already exists")
    return str(requested or next(vmid for vmid in range(_FIRST, _LAST) if vmid not in used))


@route("GET", "/cluster/status")
def status(call: Call) -> list[dict[str, Any]]:
    """Return the nodes, after a row for the cluster if there are several. A single node has the number 0."""
    nodes = list(call.node.nodes.values())
    alone = len(nodes) == 1
    rows = [_member(node, number, alone) for number, node in enumerate(nodes, 0 if alone else 1)]
    return rows if alone else [_cluster(len(nodes), call.node.is_quorate), *rows]


def _cluster(nodes: int, is_quorate: bool) -> dict[str, Any]:
    row = {"type": "cluster", "id": "cluster", "name": "minipve", "version": nodes, "nodes": nodes}
    return row | {"quorate": int(is_quorate)}


def _member(node: Node, number: int, alone: bool) -> dict[str, Any]:
    row = {"type": "node", "id": f"node/{node.name}", "name": node.name, "nodeid": number, "level": ""}
    row |= {"local": int(node.first is node), "online": int(node.is_up)}
    return row if alone else row | {"ip": node.address}


@route("GET", "/cluster/resources")
def resources(call: Call) -> list[dict[str, Any]]:
    """Return the pools, guests, nodes, storages and local network zones that the caller may see."""
    rows = _pools(call)
    for node in call.node.visit():
        rows += [*_guests(call, node), summary.node_row(node) | {"cgroup-mode": 2}]
        rows += [*_storage(call, node), *_zone(call, node)]
    row_type = call.get("type")
    types = ("qemu", "lxc") if row_type == "vm" else (row_type,)
    return [row for row in rows if row_type is None or row["type"] in types]


def _pools(call: Call) -> list[dict[str, Any]]:
    pools = call.node.access.data["pools"]
    visible = [name for name in pools if call.permit.has(f"/pool/{name}", ["Pool.Audit"])]
    return [{"type": "pool", "id": f"/pool/{name}", "pool": name} for name in visible]


def _guests(call: Call, node: Node) -> list[dict[str, Any]]:
    rows = []
    for vmid, config in node.guests():
        if not call.permit.has(f"/vms/{vmid}", ["VM.Audit"]):
            continue
        row = guest_resource(node, vmid, config)
        row |= {key: config.options[key] for key in ("tags", "lock") if key in config.options}
        rows.append(row | ({"pool": pool} if (pool := call.node.access.pool_of(vmid)) else {}))
    return rows


def _storage(call: Call, node: Node) -> list[dict[str, Any]]:
    if not call.permit.has(
        f"/storage/{volume_ids.STORAGE}", ["Datastore.Audit", "Datastore.AllocateSpace"], any_of=True
    ):
        return []
    return [summary.storage_resource(node)]


def _zone(call: Call, node: Node) -> list[dict[str, Any]]:
    if not call.permit.has("/sdn/zones/localnetwork", ["SDN.Audit", "SDN.Use"], any_of=True):
        return []
    name = node.name
    return [
        {
            "id": f"network/{name}/zone/localnetwork",
            "type": "network",
            "network": "localnetwork",
            "network-type": "zone",
            "node": name,
            "status": "ok" if node.is_up else "unknown",
        }
    ]


@route("GET", "/cluster/options")
def datacenter(call: Call) -> dict[str, Any]:
    return {"mac_prefix": "BC:24:11"}


@route("GET", "/cluster/backup-info/not-backed-up")
def not_backed_up(call: Call) -> list[dict[str, Any]]:
    """Return every guest that the caller may see, since there are no backup jobs."""
    rows = []
    everywhere = [guest for node in call.node.nodes.values() for guest in node.guests()]
    for vmid, config in everywhere:
        if call.permit.has(f"/vms/{vmid}", ["VM.Audit"]):
            name = config.options.get("name") or config.options.get("hostname")
            rows.append({"vmid": vmid, "type": config.kind.name} | ({"name": name} if name else {}))
    return rows
