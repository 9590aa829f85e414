"""The node's network: bridges as the interfaces file says, and the taps that QEMU's NICs hang on.

Runs inside the instance's namespace. Commands are planned by pure functions and then run, so that what is
there already is left alone: a reload never takes a link down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minipve import process
from minipve.network import interfaces, tunnels, vnets
from minipve.network.interfaces import Iface
from minipve.paths import Paths
from minipve.process import MachineError

Command = list[str]


def reload(paths: Paths, node: str = "") -> None:
    """Make bridges and tunnels what the interfaces files say (`ifreload -a`): new, changed, gone."""
    wanted = interfaces.load(paths.interfaces)
    if (beside := vnets.file(paths.interfaces)).exists():
        wanted = interfaces.load(beside) | wanted
    for command in plan(wanted, _present(), node):
        process.run(command)
    there = {row["ifname"]: row for row in _ip("-d", "link", "show", "type", "vxlan")}
    for command in tunnels.plan(wanted, there, {name: _peers(name) for name in there}):
        process.run(command)


def _peers(tunnel: str) -> list[str]:
    rows = process.run_json(["bridge", "-j", "fdb", "show", "dev", tunnel]) or []
    return [row["dst"] for row in rows if row.get("mac") == tunnels.EVERYWHERE and "dst" in row]


def provide(wanted: Mapping[str, Iface], node: str = "") -> None:
    """Make bridges that are not there; all others are left as they are."""
    present = _present()
    for command in plan(wanted, {name: row for name, row in present.items() if name in wanted}, node):
        process.run(command)


def _present() -> dict[str, dict[str, Any]]:
    return {row["ifname"]: row for row in _ip("-d", "address", "show", "type", "bridge")}


def plan(
    wanted: Mapping[str, Iface], present: Mapping[str, Mapping[str, Any]], node: str = ""
) -> list[Command]:
    """The commands from ``present`` (rows of `ip -j -d address show type bridge`) to ``wanted`` (pure)."""
    bridges = {name: iface for name, iface in wanted.items() if iface.is_bridge and iface.auto}
    commands = [["ip", "link", "delete", name] for name in present if name not in bridges]
    for name, iface in bridges.items():
        commands += _bridge(iface, present.get(name), node)
    return commands


def _bridge(iface: Iface, present: Mapping[str, Any] | None, node: str) -> list[Command]:
    name = iface.name
    commands: list[Command] = []
    if present is None:
        commands.append(
            ["ip", "link", "add", name, "address", bridge_mac(name, node), "type", "bridge", *_hub(iface)]
        )
        commands.append(["ip", "link", "set", name, "mtu", iface.mtu or "1500", "up"])
    else:
        if present["linkinfo"]["info_data"]["ageing_time"] != iface.ageing_s * 100:
            commands.append(["ip", "link", "set", name, "type", "bridge", "ageing_time", _centis(iface)])
        if iface.mtu and present["mtu"] != int(iface.mtu):
            commands.append(["ip", "link", "set", name, "mtu", iface.mtu])
    return commands + _addresses(iface, present)


def _addresses(iface: Iface, present: Mapping[str, Any] | None) -> list[Command]:
    rows = present["addr_info"] if present else []
    has = {f"{row['local']}/{row['prefixlen']}" for row in rows if row["family"] == "inet"}
    wanted = {iface.address} if iface.address else set()
    removed = [["ip", "address", "delete", address, "dev", iface.name] for address in sorted(has - wanted)]
    added = [["ip", "address", "add", address, "dev", iface.name] for address in sorted(wanted - has)]
    return removed + added


def _hub(iface: Iface) -> Command:
    """A bridge's settings: no spanning tree, no wait, no multicast snooping; its ageing time."""
    return ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0", "ageing_time", _centis(iface)]


def _centis(iface: Iface) -> str:
    return str(iface.ageing_s * 100)


def bridge_mac(name: str, node: str = "") -> str:
    """A fixed, local address: a bridge without one takes that of its lowest port (pure)."""
    return ":".join(
        ["02", "da", "5b", *(f"{byte:02x}" for byte in hashlib.sha256(f"{node}{name}".encode()).digest()[:3])]
    )


def exists(name: str) -> bool:
    """Whether an interface exists in this namespace."""
    return name in _statistics()


def bridge_mtu(name: str) -> int:
    """A bridge's MTU; PVE's text when there is no such bridge."""
    if not exists(name):
        raise MachineError(f"bridge '{name}' does not exist")
    return int(_ip("link", "show", "dev", name)[0]["mtu"])


def plug(tap: str, bridge: str, mtu: int = 0) -> None:
    """Hang a tap on a bridge, made if need be; ``mtu`` 0 is the bridge's (as PVE's pve-bridge script)."""
    mtu = mtu or bridge_mtu(bridge)
    if not exists(tap):
        process.run(["ip", "tuntap", "add", "dev", tap, "mode", "tap"])
    process.run(["ip", "link", "set", "dev", tap, "master", bridge, "promisc", "on", "mtu", str(mtu), "up"])


def unplug(taps: Iterable[str]) -> None:
    """Remove taps and what was made for their rate."""
    there = _statistics()
    for tap in taps:
        for name in (tap, ifb_name(tap)):
            if name in there:
                process.run(["ip", "link", "delete", "dev", name])


def ifb_name(tap: str) -> str:
    """The helper interface on which a guest's own traffic is shaped where the kernel cannot police (pure)."""
    return "ifb" + tap.removeprefix("tap").removeprefix("veth")


def machine_taps(vmid: int) -> list[str]:
    """The taps of a machine that exist."""
    return list(all_counters(f"tap{vmid}i"))


def guest_devices(vmid: int) -> list[str]:
    """The host's ends of a container's NICs that exist, and the ifbs of ends that are gone."""
    return [name for kind in ("veth", "ifb") for name in all_counters(f"{kind}{vmid}i")]


def all_counters(prefix: str) -> dict[str, tuple[int, int]]:
    """Bytes ``(to the guest, from the guest)`` of every interface whose name begins with ``prefix``."""
    return {name: numbers for name, numbers in _statistics().items() if name.startswith(prefix)}


def parse_counters(text: str) -> dict[str, tuple[int, int]]:
    """``{interface: (bytes sent, bytes received)}`` of /proc/net/dev (pure)."""
    rows = (line.partition(":") for line in text.splitlines()[2:])
    fields = {name.strip(): numbers.split() for name, _, numbers in rows}
    return {name: (int(values[8]), int(values[0])) for name, values in fields.items()}


def _statistics() -> dict[str, tuple[int, int]]:
    return parse_counters(Path("/proc/thread-self/net/dev").read_text())


def _ip(*words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = process.run_json(["ip", "-j", *words]) or []
    return [row for row in rows if row]
