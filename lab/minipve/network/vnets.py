"""The vnets of a node as interfaces: a bridge each, and in a VXLAN zone the tunnel that is its port.

They stand in ``interfaces.d/sdn``, written anew at each reload, as a node has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from minipve.atomic import write_atomic
from minipve.config.formats import split_list
from minipve.network import interfaces, sdn
from minipve.network.interfaces import Iface
from minipve.network.sdn import Options, Rows


def file(main: Path) -> Path:
    """Where the vnets stand beside a node's own ``interfaces``."""
    return main.with_name("interfaces.d") / "sdn"


def write(main: Path, running: Mapping[str, Rows], node: str) -> None:
    """Write what runs on ``node`` beside its ``main`` interfaces file, which tells its own addresses."""
    own = {iface.address.partition("/")[0] for iface in interfaces.load(main).values() if iface.address}
    made = {iface.name: iface for row in sdn.on_node(running, node) for iface in stanzas(*row, own)}
    write_atomic(file(main), interfaces.write_interfaces(made), 0o644)


def stanzas(name: str, vnet: Options, zone: Options, own: Collection[str]) -> list[Iface]:
    """The interfaces of one vnet on a node that has the addresses ``own`` (pure)."""
    mtu = str(sdn.mtu(zone))
    bridge = Iface(name, ports="none", stp="off", forward_delay="0", mtu=mtu)
    if zone["type"] != "vxlan":
        return [bridge]
    tunnel = f"vxlan_{name}"
    others = [peer for peer in split_list(zone["peers"]) if peer not in own]
    options = (
        f"vxlan-id {vnet['tag']}",
        *(f"vxlan_remoteip {peer}" for peer in others),
        *([f"vxlan-port {zone['vxlan-port']}"] if "vxlan-port" in zone else []),
    )
    return [
        Iface(tunnel, mtu=mtu, options=options),
        Iface(name, ports=tunnel, stp="off", forward_delay="0", mtu=mtu),
    ]
