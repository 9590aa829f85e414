"""The vnets of a node as interfaces: one bridge each, and in a VXLAN zone the tunnel that is its port.

As on a Proxmox VE node they are written to ``interfaces.d/sdn`` at each reload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from minipve.base.atomic import write_atomic
from minipve.config.rules.formats import split_list
from minipve.network import interfaces, sdn, vlans
from minipve.network.interfaces import Iface
from minipve.network.sdn import Options, Rows


def file(main: Path) -> Path:
    """The vnets' file that belongs to a node's ``main`` interfaces file."""
    return main.with_name("interfaces.d") / "sdn"


def write(main: Path, running: Mapping[str, Rows], node: str) -> None:
    """Write the vnets that run on ``node``. Its ``main`` interfaces file holds its own addresses."""
    own = {iface.address.partition("/")[0] for iface in interfaces.load(main).values() if iface.address}
    rows = ((*row, sdn.gateway(running, row[0])) for row in sdn.on_node(running, node))
    ifaces = {iface.name: iface for row in rows for iface in stanzas(*row, own)}
    write_atomic(file(main), interfaces.write_interfaces(ifaces), 0o644)


def stanzas(
    name: str, vnet: Options, zone: Options, gateway: str, own_addresses: Collection[str]
) -> list[Iface]:
    """Return the interfaces of one vnet on a node with ``own_addresses`` (pure).

    ``gateway`` is the address of its subnet's gateway with prefix, which the bridge of a simple zone gets.
    """
    mtu = str(sdn.mtu(zone))
    is_tunnelled, tunnel = zone["type"] == "vxlan", f"vxlan_{name}"
    ports = tunnel if is_tunnelled else "none"
    bridge = Iface(name, ports=ports, stp="off", forward_delay="0", mtu=mtu)
    if vnet.get("vlanaware"):
        bridge = replace(bridge, vlan_aware="yes", vids=vlans.DEFAULT_VIDS)
    if not is_tunnelled:
        return [replace(bridge, address=gateway, method="static") if gateway else bridge]
    peers = [peer for peer in split_list(zone["peers"]) if peer not in own_addresses]
    options = (
        f"vxlan-id {vnet['tag']}",
        *(f"vxlan_remoteip {peer}" for peer in peers),
        *([f"vxlan-port {zone['vxlan-port']}"] if "vxlan-port" in zone else []),
    )
    return [Iface(tunnel, mtu=mtu, options=options), bridge]
