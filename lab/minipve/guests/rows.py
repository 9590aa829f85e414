"""Rows of lists that contain both kinds of guest."""

from __future__ import annotations

from typing import Any

from minipve.config.rules.schema import LXC
from minipve.config.store import GuestConfig
from minipve.guests.container import lifecycle as containers
from minipve.guests.vm import summary as machines
from minipve.node.node import Node


def guest_row(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a guest's row in the list of its kind."""
    return (containers.row if config.kind is LXC else machines.vm)(node, vmid, config)


def guest_resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a guest's row among the cluster's resources and a pool's members."""
    if not node.is_up:
        row = {"id": f"{config.kind.name}/{vmid}", "type": config.kind.name, "node": node.name}
        return row | {"vmid": vmid, "status": "unknown"}
    return (containers.resource if config.kind is LXC else machines.vm_resource)(node, vmid, config)
