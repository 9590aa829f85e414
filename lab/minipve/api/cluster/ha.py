"""High availability of a cluster that has no HA resources: its groups and its status."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.node.call import Call


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
