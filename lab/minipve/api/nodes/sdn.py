"""The running zones and vnets of a node, as of the last apply."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.network import links, sdn
from minipve.node.call import Call

_ZONES = "/nodes/{node}/sdn/zones"


def _on_node(call: Call) -> dict[str, list[str]]:
    """Return zone -> its vnets on this node."""
    running = call.node.sdn.running
    vnets_of: dict[str, list[str]] = {name: [] for name in sorted(running[sdn.ZONES])}
    for name, vnet, _ in sdn.on_node(running, call.node.name):
        vnets_of[vnet["zone"]].append(name)
    return vnets_of


@route("GET", _ZONES)
def zones(call: Call) -> list[dict[str, str]]:
    """Return the running zones. A zone is available when all its vnets are."""
    return [
        {"zone": zone, "status": "available" if all(map(links.exists, vnets)) else "error"}
        for zone, vnets in _on_node(call).items()
        if call.permit.has(f"/sdn/zones/{zone}", ["SDN.Audit", "SDN.Allocate"], any_of=True)
    ]


@route("GET", f"{_ZONES}/{{zone}}/content")
def content(call: Call) -> list[dict[str, Any]]:
    """Return the vnets of a zone on this node."""
    vnets_of = _on_node(call)
    if call["zone"] not in vnets_of:
        raise ApiError(f"sdn '{call['zone']}' does not exist")
    return [
        {"vnet": name, "status": "available" if links.exists(name) else "error", "statusmsg": None}
        for name in vnets_of[call["zone"]]
    ]
