"""Bridges and tunnels as the interfaces files describe them (`ifreload -a`).

Pure functions plan the commands from what exists to what is configured; `reload` runs them. What is already
right is left alone, so a reload never takes a link down. Runs inside the node's network namespace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from minipve.base import process
from minipve.base.paths import Paths
from minipve.network import guest_ports, interfaces, links, sdn
from minipve.network.interfaces import Iface
from minipve.network.links import Command

DEFAULT_PORT = "4789"
ANY_MAC = "00:00:00:00:00:00"
"""The forwarding entries with this address list the peers that get frames for unknown addresses."""


def reload(paths: Paths, node: str = "") -> None:
    """Create, change and delete bridges and tunnels until they match the interfaces files."""
    configured = interfaces.load(paths.interfaces)
    if (vnets_file := sdn.file(paths.interfaces)).exists():
        configured = interfaces.load(vnets_file) | configured
    for command in plan(configured, _existing_bridges(), node):
        process.run(command)
    existing = {row["ifname"]: row for row in links.ip_json("-d", "link", "show", "type", "vxlan")}
    for command in plan_tunnels(configured, existing, {name: _peers(name) for name in existing}):
        process.run(command)
    for bridge in configured.values():
        if bridge.is_vlan_aware and bridge.ports in configured:
            guest_ports.apply_vlans(bridge.ports, bridge.name, tag=None, trunks="")


def _peers(tunnel: str) -> list[str]:
    rows = process.run_json(["bridge", "-j", "fdb", "show", "dev", tunnel]) or []
    return [row["dst"] for row in rows if row.get("mac") == ANY_MAC and "dst" in row]


def create_missing(configured: Mapping[str, Iface], node: str = "") -> None:
    """Create the ``configured`` bridges that do not exist. Other bridges are left as they are."""
    existing = {name: row for name, row in _existing_bridges().items() if name in configured}
    for command in plan(configured, existing, node):
        process.run(command)


def _existing_bridges() -> dict[str, dict[str, Any]]:
    return {row["ifname"]: row for row in links.ip_json("-d", "address", "show", "type", "bridge")}


def plan(
    configured: Mapping[str, Iface], existing: Mapping[str, Mapping[str, Any]], node: str = ""
) -> list[Command]:
    """Return the commands that turn the existing bridges into the configured ones (pure).

    Args:
        configured: the stanzas of the interfaces files, by name.
        existing: rows of `ip -j -d address show type bridge`, by name.
        node: the node's name, from which bridges get their MAC addresses.
    """
    bridges = {name: iface for name, iface in configured.items() if iface.is_bridge and iface.auto}
    commands = [["ip", "link", "delete", name] for name in existing if name not in bridges]
    for name, iface in bridges.items():
        commands += _create(iface, node) if name not in existing else _change(iface, existing[name])
        commands += _change_addresses(iface, existing.get(name))
    return commands


def _create(iface: Iface, node: str) -> list[Command]:
    """The commands for a new bridge: no spanning tree, no forward delay, no multicast snooping."""
    fixed = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"]
    add = ["ip", "link", "add", iface.name, "address", bridge_mac(iface.name, node), "type", "bridge"]
    return [
        [*add, *fixed, *_vlan_filtering(iface), "ageing_time", str(_ageing_centiseconds(iface))],
        ["ip", "link", "set", iface.name, "mtu", iface.mtu or "1500", "up"],
    ]


def _change(iface: Iface, existing: Mapping[str, Any]) -> list[Command]:
    change, ageing_time, commands = ["ip", "link", "set", iface.name], _ageing_centiseconds(iface), []
    if existing["linkinfo"]["info_data"]["ageing_time"] != ageing_time:
        commands.append([*change, "type", "bridge", "ageing_time", str(ageing_time)])
    if bool(existing["linkinfo"]["info_data"].get("vlan_filtering")) != iface.is_vlan_aware:
        commands.append([*change, "type", "bridge", "vlan_filtering", str(int(iface.is_vlan_aware))])
    if iface.mtu and existing["mtu"] != int(iface.mtu):
        commands.append([*change, "mtu", iface.mtu])
    return commands


def _vlan_filtering(iface: Iface) -> Command:
    """The setting of a new VLAN-aware bridge. Kernels without VLAN filtering refuse even to switch it off."""
    return ["vlan_filtering", "1"] if iface.is_vlan_aware else []


def _change_addresses(iface: Iface, existing: Mapping[str, Any] | None) -> list[Command]:
    rows = existing["addr_info"] if existing else []
    before = {f"{row['local']}/{row['prefixlen']}" for row in rows if row["family"] == "inet"}
    after = {iface.address} if iface.address else set()
    return [
        *(["ip", "address", "delete", address, "dev", iface.name] for address in sorted(before - after)),
        *(["ip", "address", "add", address, "dev", iface.name] for address in sorted(after - before)),
    ]


def _ageing_centiseconds(iface: Iface) -> int:
    return iface.ageing_s * 100


def bridge_mac(name: str, node: str = "") -> str:
    """Return a fixed, locally administered MAC address for a bridge (pure).

    Without one, a bridge takes the lowest address of its ports, which changes when a port is added.
    """
    digest = hashlib.sha256(f"{node}{name}".encode()).digest()
    return ":".join(["02", "da", "5b", *(f"{byte:02x}" for byte in digest[:3])])


# VXLAN tunnels between the nodes of a cluster; each is a port of a vnet's bridge. Like a bridge, a
# tunnel learns behind which peer a MAC address is. It sends a frame for an unknown address to all its
# peers.
def plan_tunnels(
    configured: Mapping[str, Iface],
    existing: Mapping[str, Mapping[str, Any]],
    existing_peers: Mapping[str, Iterable[str]],
) -> list[Command]:
    """Return the commands that turn the existing tunnels into the configured ones (pure).

    A tunnel whose VXLAN id or port has changed is deleted and created again.

    Args:
        configured: the stanzas of the interfaces files, by name.
        existing: rows of `ip -j -d link show type vxlan`, by name.
        existing_peers: the addresses of the peers that each existing tunnel has.
    """
    tunnels = {name: iface for name, iface in configured.items() if iface.vxlan_id and iface.auto}
    usable = {
        name for name, iface in tunnels.items() if name in existing and _matches_tunnel(iface, existing[name])
    }
    bridges = {iface.ports: name for name, iface in configured.items() if iface.ports in tunnels}
    commands = [["ip", "link", "delete", name] for name in existing if name not in usable]
    for name, iface in tunnels.items():
        is_new = name not in usable
        commands += [_create_tunnel(iface)] if is_new else []
        if is_new or existing[name].get("master") != bridges.get(name):
            commands.append(["ip", "link", "set", name, "master", bridges[name], "mtu", iface.mtu, "up"])
        commands += _change_peers(iface, set() if is_new else set(existing_peers.get(name, ())))
    return commands


def _matches_tunnel(iface: Iface, row: Mapping[str, Any]) -> bool:
    vxlan = row["linkinfo"]["info_data"]
    return (str(vxlan["id"]), str(vxlan["port"])) == (iface.vxlan_id, _tunnel_port(iface))


def _tunnel_port(iface: Iface) -> str:
    return iface.option("vxlan-port") or DEFAULT_PORT


def _create_tunnel(iface: Iface) -> Command:
    return [
        "ip",
        "link",
        "add",
        iface.name,
        "type",
        "vxlan",
        "id",
        iface.vxlan_id,
        "dstport",
        _tunnel_port(iface),
    ]


def _change_peers(iface: Iface, before: set[str]) -> list[Command]:
    after = set(iface.options_named("vxlan_remoteip"))
    changes = {"delete": sorted(before - after), "append": sorted(after - before)}
    return [
        ["bridge", "fdb", verb, ANY_MAC, "dev", iface.name, "dst", peer]
        for verb, peers in changes.items()
        for peer in peers
    ]
