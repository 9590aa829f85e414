"""Links on the host side and virtual cables between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from minipve.base import process
from minipve.base.errors import MachineError

# Network links on the host side: taps and veths on bridges, their MTU and their byte counters.
#
# Runs inside the node's network namespace.

Command = list[str]
Log = Callable[[str], None]
"""Takes one line for the log of the task that is running."""


def exists(name: str) -> bool:
    """Whether this namespace has an interface ``name``."""
    return name in _counters()


def bridge_mtu(name: str) -> int:
    """Return a bridge's MTU in bytes; MachineError with PVE's text if there is no such bridge."""
    if not exists(name):
        raise MachineError(f"bridge '{name}' does not exist")
    return int(ip_json("link", "show", "dev", name)[0]["mtu"])


def plug_tap(tap: str, bridge: str, mtu: int = 0, queues: int = 1) -> None:
    """Attach a tap to a bridge, as PVE's pve-bridge script does; create it if it does not exist.

    Args:
        tap: the name of the interface.
        bridge: an existing bridge.
        mtu: 0 means the bridge's MTU.
        queues: how often QEMU opens a new tap, one file descriptor per queue.
    """
    mtu = mtu or bridge_mtu(bridge)
    if not exists(tap):
        multi_queue = ["multi_queue"] if queues > 1 else []
        process.run(["ip", "tuntap", "add", "dev", tap, "mode", "tap", *multi_queue])
    process.run(["ip", "link", "set", "dev", tap, "master", bridge, "promisc", "on", "mtu", str(mtu), "up"])


def unplug(devices: Iterable[str]) -> None:
    """Delete the host ends of NICs, with the ifb devices of their rate caps, where they exist."""
    existing = _counters()
    for device in devices:
        for name in (device, ifb_name(device)):
            if name in existing:
                process.run(["ip", "link", "delete", "dev", name])


def ifb_name(device: str) -> str:
    """The ifb device that shapes a guest's own traffic where the kernel has no policer (pure)."""
    return "ifb" + device.removeprefix("tap").removeprefix("veth")


def machine_taps(vmid: int) -> list[str]:
    """The taps of a VM that exist."""
    return list(counters(f"tap{vmid}i"))


def container_links(vmid: int) -> list[str]:
    """The host ends of a container's NICs, and ifb devices whose NIC does not exist any more."""
    return [name for kind in ("veth", "ifb") for name in counters(f"{kind}{vmid}i")]


def counters(prefix: str) -> dict[str, tuple[int, int]]:
    """Return ``(bytes to the guest, bytes from the guest)`` of each interface whose name starts so."""
    return {name: numbers for name, numbers in _counters().items() if name.startswith(prefix)}


def parse_counters(text: str) -> dict[str, tuple[int, int]]:
    """Parse /proc/net/dev into ``{interface: (bytes sent, bytes received)}`` (pure)."""
    rows = (line.partition(":") for line in text.splitlines()[2:])
    fields = {name.strip(): numbers.split() for name, _, numbers in rows}
    return {name: (int(values[8]), int(values[0])) for name, values in fields.items()}


def _counters() -> dict[str, tuple[int, int]]:
    return parse_counters(Path("/proc/thread-self/net/dev").read_text())


def ip_json(*words: str) -> list[dict[str, Any]]:
    """Return the rows that `ip -j` prints."""
    rows: list[dict[str, Any]] = process.run_json(["ip", "-j", *words]) or []
    return [row for row in rows if row]


# Virtual cables between the nodes of a cluster.
#
# Each further node has a veth pair to the first node's management bridge, so that all nodes share one
# management network, as if they were connected to one switch. VXLAN tunnels between nodes use it too.

BRIDGE, NODE_END = "vmbr0", "eno1"


def first_node_end(node: str) -> str:
    """The name of the cable to ``node`` on the first node."""
    return f"to-{node}"


def connect_first_node(node: str, holder_pid: int) -> None:
    """Lay the cable to ``node`` and plug it into the first node's bridge. Runs in the first node's namespace.

    ``holder_pid`` is the process that holds the namespace of ``node``.
    """
    end = first_node_end(node)
    if not exists(end):
        peer = ["peer", "name", NODE_END, "netns", str(holder_pid)]
        process.run(["ip", "link", "add", end, "type", "veth", *peer])
    process.run(["ip", "link", "set", end, "master", BRIDGE, "up"])


def connect_further_node() -> None:
    """Plug the other end into the management bridge of the node in whose namespace this runs."""
    process.run(["ip", "link", "set", NODE_END, "master", BRIDGE, "up"])


def switch(node: str, state: str) -> Command:
    """The command that takes the cable to ``node`` "up" or "down" (pure)."""
    return ["ip", "link", "set", first_node_end(node), state]
