"""Virtual cables between the nodes of a cluster.

Each further node has a veth pair to the first node's management bridge, so that all nodes share one
management network, as if they were connected to one switch. VXLAN tunnels between nodes use it too.
"""

from __future__ import annotations

from minipve.base import process
from minipve.network import links
from minipve.network.links import Command

BRIDGE, NODE_END = "vmbr0", "eno1"


def first_node_end(node: str) -> str:
    """The name of the cable to ``node`` on the first node."""
    return f"to-{node}"


def connect_first_node(node: str, holder_pid: int) -> None:
    """Lay the cable to ``node`` and plug it into the first node's bridge. Runs in the first node's namespace.

    ``holder_pid`` is the process that holds the namespace of ``node``.
    """
    end = first_node_end(node)
    if not links.exists(end):
        peer = ["peer", "name", NODE_END, "netns", str(holder_pid)]
        process.run(["ip", "link", "add", end, "type", "veth", *peer])
    process.run(["ip", "link", "set", end, "master", BRIDGE, "up"])


def connect_further_node() -> None:
    """Plug the other end into the management bridge of the node in whose namespace this runs."""
    process.run(["ip", "link", "set", NODE_END, "master", BRIDGE, "up"])


def switch(node: str, state: str) -> Command:
    """The command that takes the cable to ``node`` "up" or "down" (pure)."""
    return ["ip", "link", "set", first_node_end(node), state]
