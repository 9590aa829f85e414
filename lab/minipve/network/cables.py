"""What joins the nodes of a cluster: a cable from each further node to the first one's management bridge.

So there is one management network, as of machines on one switch, and tunnels between nodes go over it.
"""

from __future__ import annotations

from minipve import process
from minipve.network import net

BRIDGE, CARD = "vmbr0", "eno1"


def name_of(node: str) -> str:
    """The first node's end of the cable to ``node``."""
    return f"to-{node}"


def lay(node: str, holder: int) -> None:
    """Join ``node``, whose namespace process ``holder`` holds, to the first one, in whose network we are."""
    end = name_of(node)
    if not net.exists(end):
        process.run(["ip", "link", "add", end, "type", "veth", "peer", "name", CARD, "netns", str(holder)])
    process.run(["ip", "link", "set", end, "master", BRIDGE, "up"])


def plug() -> None:
    """Hang the end of the node in whose network we are on its management bridge."""
    process.run(["ip", "link", "set", CARD, "master", BRIDGE, "up"])


def switch(node: str, state: str) -> list[str]:
    """The command that takes the cable to ``node`` "up" or "down" (pure)."""
    return ["ip", "link", "set", name_of(node), state]
