"""Lists that are always empty here: jobs, HA resources, appliances, disks, subscriptions.

Exporters, inventory plugins and web pages ask for them, and PVE answers with an empty list, too.
"""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.node.call import Call


@route("GET", "/cluster/backup")
@route("GET", "/cluster/ha/resources")
@route("GET", "/cluster/ha/rules")
@route("GET", "/cluster/jobs/realm-sync")
@route("GET", "/cluster/replication")
@route("GET", "/cluster/sdn/controllers")
@route("GET", "/cluster/sdn/dns")
@route("GET", "/cluster/sdn/ipams/{ipam}/status")
@route("GET", "/nodes/{node}/aplinfo")
@route("GET", "/nodes/{node}/disks/list")
@route("GET", "/nodes/{node}/replication")
def nothing(call: Call) -> list[dict[str, Any]]:
    return []


@route("GET", "/cluster/ha/groups")
def ha_groups(call: Call) -> list[dict[str, Any]]:
    """Refuse, as a node does since Proxmox VE 9 has rules instead."""
    raise ApiError("cannot index groups: ha groups have been migrated to rules")


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


@route("GET", "/cluster/sdn/ipams")
def ipams(call: Call) -> list[dict[str, Any]]:
    """Return PVE's own address management, which has no addresses here."""
    return [{"ipam": "pve", "type": "pve", "digest": None}]


@route("GET", "/cluster/options")
def datacenter(call: Call) -> dict[str, Any]:
    return {"mac_prefix": "BC:24:11"}


@route("GET", "/nodes/{node}/subscription")
def subscription(call: Call) -> dict[str, Any]:
    return {"status": "notfound", "message": "There is no subscription key"}
