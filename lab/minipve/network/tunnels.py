"""VXLAN tunnels between the nodes of a cluster; each is a port of a vnet's bridge.

Like a bridge, a tunnel learns behind which peer a MAC address is. It sends a frame for an unknown address to
all its peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minipve.network.interfaces import Iface
from minipve.network.links import Command

DEFAULT_PORT = "4789"
ANY_MAC = "00:00:00:00:00:00"
"""The forwarding entries with this address list the peers that get frames for unknown addresses."""


def plan(
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
    usable = {name for name, iface in tunnels.items() if name in existing and _matches(iface, existing[name])}
    bridges = {iface.ports: name for name, iface in configured.items() if iface.ports in tunnels}
    commands = [["ip", "link", "delete", name] for name in existing if name not in usable]
    for name, iface in tunnels.items():
        is_new = name not in usable
        commands += [_create(iface)] if is_new else []
        if is_new or existing[name].get("master") != bridges.get(name):
            commands.append(["ip", "link", "set", name, "master", bridges[name], "mtu", iface.mtu, "up"])
        commands += _change_peers(iface, set() if is_new else set(existing_peers.get(name, ())))
    return commands


def _matches(iface: Iface, row: Mapping[str, Any]) -> bool:
    vxlan = row["linkinfo"]["info_data"]
    return (str(vxlan["id"]), str(vxlan["port"])) == (iface.vxlan_id, _port(iface))


def _port(iface: Iface) -> str:
    return iface.option("vxlan-port") or DEFAULT_PORT


def _create(iface: Iface) -> Command:
    return ["ip", "link", "add", iface.name, "type", "vxlan", "id", iface.vxlan_id, "dstport", _port(iface)]


def _change_peers(iface: Iface, before: set[str]) -> list[Command]:
    after = set(iface.options_named("vxlan_remoteip"))
    changes = {"delete": sorted(before - after), "append": sorted(after - before)}
    return [
        ["bridge", "fdb", verb, ANY_MAC, "dev", iface.name, "dst", peer]
        for verb, peers in changes.items()
        for peer in peers
    ]
