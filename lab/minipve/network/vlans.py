"""VLANs of guests' NICs on VLAN-aware bridges, as pve-common's Network.pm sets them.

Runs inside the node's network namespace.
"""

from __future__ import annotations

from functools import cache

from minipve.base import process
from minipve.base.process import MachineError
from minipve.network import links
from minipve.network.links import Command

UNSUPPORTED = "not supported by this kernel, which has no VLAN filtering (CONFIG_BRIDGE_VLAN_FILTERING)"
DEFAULT_VIDS = "2-4094"
"""The tagged VLANs of a VLAN-aware bridge whose configuration names none."""
_PROBE = "vlanprobe0"


@cache
def supported() -> bool:
    """Return whether this kernel filters VLANs on bridges. The first call tries it with a new bridge."""
    try:
        process.run(["ip", "link", "add", _PROBE, "type", "bridge", "vlan_filtering", "1"])
    except MachineError:
        return False
    process.run(["ip", "link", "delete", _PROBE])
    return True


def is_aware(bridge: str) -> bool:
    """Return whether a bridge exists and filters VLANs."""
    if not links.exists(bridge):
        return False
    row = links.ip_json("-d", "link", "show", "dev", bridge)[0]
    return bool(row.get("linkinfo", {}).get("info_data", {}).get("vlan_filtering"))


def problem(bridge: str, tag: int | None, trunks: str) -> str | None:
    """Return PVE's error if a NIC cannot have its VLANs on this bridge; None if it can."""
    if not (tag or trunks) or is_aware(bridge):
        return None
    if trunks:
        return "vlan aware feature need to be enabled to use trunks"
    return f"no physical interface on bridge '{bridge}'"


def commands(device: str, tag: int | None, trunks: str) -> list[Command]:
    """Return the commands that give a port its VLANs (pure).

    Args:
        device: a port of a VLAN-aware bridge.
        tag: the VLAN of the guest's untagged frames.
        trunks: VLANs whose tagged frames the guest may use: ``10;20-29``. Without tag and trunks it may use
            all of them.
    """
    add = ["bridge", "vlan", "add", "dev", device, "vid"]
    tagged = trunks.split(";") if trunks else [] if tag else [DEFAULT_VIDS]
    return [
        ["bridge", "vlan", "del", "dev", device, "vid", "1-4094"],
        *([[*add, str(tag or 1), "pvid", "untagged"]] if tag or not trunks else []),
        *([*add, vids] for vids in tagged),
    ]


def apply(device: str, bridge: str, tag: int | None, trunks: str) -> None:
    """Give a port of a VLAN-aware bridge its VLANs. Ports of other bridges stay as they are."""
    if is_aware(bridge):
        for command in commands(device, tag, trunks):
            process.run(command)
