"""Rows of guests in lists that hold both kinds."""

from __future__ import annotations

from typing import Any

from minipve.config.kinds import LXC
from minipve.config.store import GuestConfig
from minipve.container import summary as containers
from minipve.node import Node
from minipve.vm import summary as machines


def guest_row(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """A guest as the list of its kind shows it."""
    return (containers.row if config.kind is LXC else machines.vm)(node, vmid, config)


def guest_resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """A guest among the cluster's resources and a pool's members; little is known of one on a dead node."""
    if not node.is_up:
        told = {"id": f"{config.kind.name}/{vmid}", "type": config.kind.name, "node": node.name}
        return told | {"vmid": vmid, "status": "unknown"}
    return (containers.resource if config.kind is LXC else machines.vm_resource)(node, vmid, config)
