"""The whole cluster: version, free VMIDs, nodes, resources; and what a cluster without it answers."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives
from minipve.guests.rows import guest_resource
from minipve.guests.vm import summary
from minipve.node import node as node_module
from minipve.node.call import Call
from minipve.node.node import Node

# The whole cluster: version, free VMIDs, nodes, the list of all resources.

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
        f"/storage/{drives.STORAGE}", ["Datastore.Audit", "Datastore.AllocateSpace"], any_of=True
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


# High availability of a cluster that has no HA resources: its groups and its status.


@route("GET", "/cluster/ha/groups")
def ha_groups(call: Call) -> list[dict[str, Any]]:
    """Refuse, as a node does since Proxmox VE 9 has rules instead."""
    raise ApiError("cannot index groups: ha groups have been migrated to rules")


@route("GET", "/cluster/ha/status/current")
def ha_status(call: Call) -> list[dict[str, Any]]:
    """Return whether the cluster is quorate."""
    status = "OK" if call.node.is_quorate else f"No quorum on node '{call.node.name}'!"
    return [{"id": "quorum", "type": "quorum", "status": status} | _quorum(call)]


def _quorum(call: Call) -> dict[str, Any]:
    return {"node": call.node.name, "quorate": int(call.node.is_quorate)}


@route("GET", "/cluster/ha/status/manager_status")
def manager_status(call: Call) -> dict[str, Any]:
    """Return the status of a cluster whose HA manager has never had a resource."""
    return {"manager_status": {}, "quorum": _quorum(call)}


# Notifications as on a new cluster: one target and one matcher, both built in. minipve sends none.

_PATH = "/cluster/notifications"
_BUILT_IN = {"origin": "builtin"}
_TARGET = {"name": "mail-to-root", "comment": "Send mails to root@pam's email address"}
_ENDPOINTS: dict[str, list[dict[str, Any]]] = {
    "gotify": [],
    "sendmail": [_TARGET | {"mailto-user": ["root@pam"]}],
    "smtp": [],
    "webhook": [],
}
_MATCHERS: list[dict[str, Any]] = [
    {
        "name": "default-matcher",
        "comment": "Route all notifications to mail-to-root",
        "mode": "all",
        "target": ["mail-to-root"],
    }
]
_TYPES = ("fencing", "package-updates", "replication", "system-mail", "vzdump")


@route("GET", f"{_PATH}/targets")
def targets(call: Call) -> list[dict[str, Any]]:
    return [_TARGET | {"type": "sendmail"} | _BUILT_IN]


@route("GET", f"{_PATH}/matcher-fields")
def matcher_fields(call: Call) -> list[dict[str, str]]:
    return [{"name": name} for name in ("type", "hostname", "job-id")]


@route("GET", f"{_PATH}/matcher-field-values")
def matcher_field_values(call: Call) -> list[dict[str, str]]:
    """Return the types of notifications and the nodes' names. There are no backup jobs."""
    types = [{"field": "type", "value": name} for name in _TYPES]
    return types + [{"field": "hostname", "value": name} for name in call.node.nodes]


def _declare(path: str, noun: str, entries: list[dict[str, Any]]) -> None:
    @route("GET", path)
    def entry_list(call: Call) -> list[dict[str, Any]]:
        return [entry | _BUILT_IN for entry in entries]

    @route("GET", f"{path}/{{name}}")
    def read(call: Call) -> dict[str, Any]:
        """Return one entry. Raises 404 for any other."""
        for entry in entries:
            if entry["name"] == call["name"]:
                return entry
        raise ApiError(f"{noun} '{call['name']}' not found", 404)


_declare(f"{_PATH}/matchers", "matcher", _MATCHERS)
for _kind, _entries in _ENDPOINTS.items():
    _declare(f"{_PATH}/endpoints/{_kind}", f"{_kind} endpoint", _entries)
