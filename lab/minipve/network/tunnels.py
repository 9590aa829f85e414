"""VXLAN tunnels between the nodes of a cluster: each is a port of a vnet's bridge.

A frame whose place is not known goes to every peer, and a tunnel learns where a place is, as a bridge does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minipve.network.interfaces import Iface

Command = list[str]
PORT = "4789"
EVERYWHERE = "00:00:00:00:00:00"
"""The address under which a tunnel keeps those who get what it does not know the place of."""


def plan(
    wanted: Mapping[str, Iface],
    present: Mapping[str, Mapping[str, Any]],
    peers: Mapping[str, Iterable[str]],
) -> list[Command]:
    """The commands from ``present`` (rows of `ip -j -d link show type vxlan`) to ``wanted`` (pure).

    ``peers`` are those that each tunnel present has. One with another number or port is made anew.
    """
    tunnels = {name: iface for name, iface in wanted.items() if iface.vxlan_id and iface.auto}
    kept = {name for name, iface in tunnels.items() if name in present and _is_same(iface, present[name])}
    bridges = {iface.ports: name for name, iface in wanted.items() if iface.ports in tunnels}
    commands = [["ip", "link", "delete", name] for name in present if name not in kept]
    for name, iface in tunnels.items():
        commands += [] if name in kept else _make(iface)
        if name not in kept or present[name].get("master") != bridges.get(name):
            commands.append(["ip", "link", "set", name, "master", bridges[name], "mtu", iface.mtu, "up"])
        commands += _peers(iface, set(peers.get(name, ())) if name in kept else set())
    return commands


def _is_same(iface: Iface, present: Mapping[str, Any]) -> bool:
    facts = present["linkinfo"]["info_data"]
    return (str(facts["id"]), str(facts["port"])) == (iface.vxlan_id, _port(iface))


def _port(iface: Iface) -> str:
    return iface.option("vxlan-port") or PORT


def _make(iface: Iface) -> list[Command]:
    return [["ip", "link", "add", iface.name, "type", "vxlan", "id", iface.vxlan_id, "dstport", _port(iface)]]


def _peers(iface: Iface, has: set[str]) -> list[Command]:
    wanted = set(iface.options_named("vxlan_remoteip"))
    words = {"delete": sorted(has - wanted), "append": sorted(wanted - has)}
    return [
        ["bridge", "fdb", verb, EVERYWHERE, "dev", iface.name, "dst", peer]
        for verb, found in words.items()
        for peer in found
    ]
