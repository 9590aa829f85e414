"""What concerns the whole cluster: version, free VMIDs, its nodes, the list of all resources."""

from __future__ import annotations

from typing import Any

from minipve import node as node_module
from minipve.api import route
from minipve.errors import parameter_error
from minipve.image import storage
from minipve.node import Call, Node
from minipve.summaries import guest_resource
from minipve.vm import summary

_FIRST, _LAST = 100, 1_000_000


@route("GET", "/version")
def version(call: Call) -> dict[str, str]:
    """The version that this endpoint speaks; ``repoid`` says that it is minipve."""
    return node_module.VERSION


@route("GET", "/cluster/nextid")
def nextid(call: Call) -> str:
    """The lowest free VMID (a string, as PVE has it), or the one asked for if it is free."""
    used = set(call.node.vmids())
    wanted = call.get("vmid")
    if wanted in used:
        raise parameter_error(vmid=f"VM {wanted} already exists")
    return str(wanted or next(vmid for vmid in range(_FIRST, _LAST) if vmid not in used))


@route("GET", "/cluster/status")
def status(call: Call) -> list[dict[str, Any]]:
    """The nodes, and where there are several the cluster that they are; a lone one has the number 0."""
    nodes = list(call.node.nodes.values())
    alone = len(nodes) == 1
    rows = [_member(node, number, alone) for number, node in enumerate(nodes, 0 if alone else 1)]
    return rows if alone else [_cluster(len(nodes), sum(node.is_up for node in nodes)), *rows]


def _cluster(nodes: int, up: int) -> dict[str, Any]:
    told = {"type": "cluster", "id": "cluster", "name": "minipve", "version": nodes, "nodes": nodes}
    return told | {"quorate": int(2 * up > nodes)}


def _member(node: Node, number: int, alone: bool) -> dict[str, Any]:
    row = {"type": "node", "id": f"node/{node.name}", "name": node.name, "nodeid": number, "level": ""}
    row |= {"local": int(node.first is node), "online": int(node.is_up)}
    return row if alone else row | {"ip": node.address}


@route("GET", "/cluster/resources")
def resources(call: Call) -> list[dict[str, Any]]:
    """Pools, guests, nodes, storages, local network zones, as far as the caller may see them."""
    rows = _pools(call)
    for node in call.node.visit():
        rows += [*_guests(call, node), summary.node_row(node) | {"cgroup-mode": 2}]
        rows += [*_storage(call, node), *_zone(call, node)]
    wanted = call.get("type")
    kinds = ("qemu", "lxc") if wanted == "vm" else (wanted,)
    return [row for row in rows if wanted is None or row["type"] in kinds]


def _pools(call: Call) -> list[dict[str, Any]]:
    pools = call.node.access.data["pools"]
    seen = [name for name in pools if call.permit.has(f"/pool/{name}", ["Pool.Audit"])]
    return [{"type": "pool", "id": f"/pool/{name}", "pool": name} for name in seen]


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
        f"/storage/{storage.NAME}", ["Datastore.Audit", "Datastore.AllocateSpace"], any_of=True
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
