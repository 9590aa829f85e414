"""What a node may have and this endpoint never has: backup and replication jobs, HA, groups, a subscription.

Exporters, inventories and web pages ask for these lists; an empty one is the truth, and PVE's answer.
"""

from __future__ import annotations

from typing import Any

from minipve.api import route
from minipve.node import Call


@route("GET", "/access/groups")
@route("GET", "/cluster/backup")
@route("GET", "/cluster/ha/groups")
@route("GET", "/cluster/ha/resources")
@route("GET", "/cluster/ha/rules")
@route("GET", "/cluster/replication")
@route("GET", "/nodes/{node}/replication")
def nothing(call: Call) -> list[dict[str, Any]]:
    """There are none."""
    return []


@route("GET", "/cluster/backup-info/not-backed-up")
def not_backed_up(call: Call) -> list[dict[str, Any]]:
    """Every guest that the caller may see, since no job backs up any."""
    rows = []
    everywhere = [guest for node in call.node.nodes.values() for guest in node.guests()]
    for vmid, config in everywhere:
        if call.permit.has(f"/vms/{vmid}", ["VM.Audit"]):
            name = config.options.get("name") or config.options.get("hostname")
            rows.append({"vmid": vmid, "type": config.kind.name} | ({"name": name} if name else {}))
    return rows


@route("GET", "/cluster/ha/status/current")
def ha_status(call: Call) -> list[dict[str, Any]]:
    """The node that answers always has a quorum."""
    return [{"id": "quorum", "type": "quorum", "node": call.node.name, "status": "OK", "quorate": 1}]


@route("GET", "/cluster/options")
def datacenter(call: Call) -> dict[str, Any]:
    """The default, which is in force: the prefix of the MAC addresses made here."""
    return {"mac_prefix": "BC:24:11"}


@route("GET", "/nodes/{node}/subscription")
def subscription(call: Call) -> dict[str, Any]:
    """None."""
    return {"status": "notfound", "message": "There is no subscription key"}
