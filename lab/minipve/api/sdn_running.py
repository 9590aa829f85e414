"""The vnets that run on a node, as the last apply made them."""

from __future__ import annotations

from typing import Any

from minipve.api import route
from minipve.errors import ApiError
from minipve.network import links, sdn
from minipve.node import Call

_ZONES = "/nodes/{node}/sdn/zones"


def _on_node(call: Call) -> dict[str, list[str]]:
    """Zone -> its vnets on this node."""
    running = call.node.sdn.running
    found: dict[str, list[str]] = {name: [] for name in sorted(running[sdn.ZONES])}
    for name, vnet, _ in sdn.on_node(running, call.node.name):
        found[vnet["zone"]].append(name)
    return found


@route("GET", _ZONES)
def zones(call: Call) -> list[dict[str, str]]:
    """The zones that run, each with its state: available once all its vnets are there."""
    return [
        {"zone": zone, "status": "available" if all(map(links.exists, vnets)) else "error"}
        for zone, vnets in _on_node(call).items()
        if call.permit.has(f"/sdn/zones/{zone}", ["SDN.Audit", "SDN.Allocate"], any_of=True)
    ]


@route("GET", f"{_ZONES}/{{zone}}/content")
def content(call: Call) -> list[dict[str, Any]]:
    """The vnets of a zone on this node."""
    found = _on_node(call)
    if call["zone"] not in found:
        raise ApiError(f"sdn '{call['zone']}' does not exist")
    return [
        {"vnet": name, "status": "available" if links.exists(name) else "error", "statusmsg": None}
        for name in found[call["zone"]]
    ]
