"""The host ends of guests' NICs: taps and veths on bridges, their rate caps and VLANs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from minipve.base import process
from minipve.base.errors import MachineError
from minipve.config import nics
from minipve.config.container_nics import ContainerNic, host_name
from minipve.config.nics import Nic
from minipve.network import links
from minipve.network.links import Command, Log

# The rate cap of a NIC (`rate`), as Proxmox VE sets it (pve-common, Network.pm, tap_rate_limit).
#
# Towards the guest, an HTB class on the host's device shapes: frames above the rate wait in a queue. From
# the
# guest, a policer on the device's ingress drops frames above the rate. Both get a burst of 1 MiB; HTB makes
# no use of it, because the bucket of its ceiling holds one frame only.
#
# A kernel without act_police or cls_basic redirects the guest's traffic to an ifb device with the same HTB
# class instead. That shapes where a real node polices, so results name it differently ("shape-ifb", not
# "police").

BURST = "1048576b"


def apply_rate(device: str, index: int, nic: Nic | ContainerNic, log: Log) -> None:
    """Set the rate cap of ``net<index>`` and log the method used for the guest's own traffic."""
    if method := set_rate(device, nic.rate_bytes):
        log(f"net{index}: rate {nic.rate_mib} MiB/s to the guest by htb, from the guest by {method}")


def set_rate(device: str, rate_bytes: int | None) -> str:
    """Set, change or remove the rate cap of a NIC without taking its link down.

    Args:
        device: the host end of the NIC.
        rate_bytes: bytes/s; None or 0 removes the cap.

    Returns:
        How the guest's own traffic is limited: "police", "shape-ifb", or "" without a cap.

    Raises:
        MachineError: the kernel can do neither.
    """
    _clear(device)
    if not rate_bytes:
        return ""
    rate = f"{rate_bytes}bps"
    for command in to_guest(device, rate):
        process.run(command)
    for method, commands in from_guest(device, rate).items():
        if _succeeds(commands):
            return method.partition(" ")[0]
    raise MachineError(f"this kernel cannot limit the rate of {device}: it has neither act_police nor ifb")


def _clear(device: str) -> None:
    for command in removal(device):
        _succeeds([command])
    if links.exists(links.ifb_name(device)):
        process.run(["ip", "link", "delete", "dev", links.ifb_name(device)])


def _succeeds(commands: list[Command]) -> bool:
    """Run commands until the kernel refuses one."""
    try:
        for command in commands:
            process.run(command)
    except MachineError:
        return False
    return True


def removal(device: str) -> list[Command]:
    """The commands that Proxmox VE runs before each change; each of them may fail (pure)."""
    return [
        ["tc", "class", "del", "dev", device, "parent", "1:", "classid", "1:1"],
        ["tc", "filter", "del", "dev", device, "parent", "ffff:", "protocol", "all", "pref", "50", "u32"],
        ["tc", "qdisc", "del", "dev", device, "ingress"],
        ["tc", "qdisc", "del", "dev", device, "root"],
    ]


def to_guest(device: str, rate: str) -> list[Command]:
    """The commands for an HTB class on what a device sends (pure); ``rate`` in tc's ``bps``, bytes/s."""
    return [
        ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"],
        [
            *("tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1"),
            *("htb", "rate", rate, "burst", BURST),
        ],
    ]


def from_guest(device: str, rate: str) -> dict[str, list[Command]]:
    """The methods that limit what a guest sends, with their commands, in order of preference (pure)."""
    ifb = links.ifb_name(device)
    match_all = ["u32", "match", "u32", "0", "0"]
    ingress = ["tc", "qdisc", "add", "dev", device, "handle", "ffff:", "ingress"]
    add = ["tc", "filter", "add", "dev", device, "parent", "ffff:"]
    police = ["police", "rate", rate, "burst", BURST, "mtu", "64kb", "drop"]
    redirect = ["action", "mirred", "egress", "redirect", "dev", ifb]
    return {
        "police": [ingress, [*add, "prio", "50", "basic", *police]],
        "police by u32": [[*add, "protocol", "all", "prio", "50", *match_all, *police]],
        "shape-ifb": [
            ["ip", "link", "add", ifb, "type", "ifb"],
            ["ip", "link", "set", ifb, "up"],
            *to_guest(ifb, rate),
            [*add, "protocol", "all", "prio", "50", *match_all, *redirect],
        ],
    }


# VLANs of guests' NICs on VLAN-aware bridges, as pve-common's Network.pm sets them.
#
# Runs inside the node's network namespace.

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


def vlan_problem(bridge: str, tag: int | None, trunks: str) -> str | None:
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


def apply_vlans(device: str, bridge: str, tag: int | None, trunks: str) -> None:
    """Give a port of a VLAN-aware bridge its VLANs. Ports of other bridges stay as they are."""
    if is_aware(bridge):
        for command in commands(device, tag, trunks):
            process.run(command)


# The host end of a virtual machine's NICs: one tap each, on its bridge, with its rate cap.

MIN_MTU = 576  # the smallest that IP allows


def plug_tap(vmid: int, index: int, nic: Nic, log: Log) -> None:
    """Create the tap of a NIC, attach it to its bridge and set its rate cap."""
    if nic.bridge is None:
        log(f"WARN: net{index}: no bridge given, QEMU's own NAT is used")
        return
    tap, bridge_mtu = nics.tap_name(vmid, index), links.bridge_mtu(nic.bridge)
    if problem := vlan_problem(nic.bridge, nic.tag, nic.trunks):
        raise MachineError(problem)
    queues = nic.queues if nic.model == "virtio" else 1
    links.plug_tap(tap, nic.bridge, _own_mtu(index, nic, bridge_mtu, log) or bridge_mtu, queues)
    apply_vlans(tap, nic.bridge, nic.tag, nic.trunks)
    apply_rate(tap, index, nic, log)


def _own_mtu(index: int, nic: Nic, bridge_mtu: int, log: Log) -> int:
    """Return the MTU that the configuration sets for a NIC, or 0 if it takes the bridge's.

    Raises:
        MachineError: the NIC cannot have this MTU (PVE's text).
    """
    netdev = f"netdev net{index}"
    if nic.mtu and nic.model != "virtio":
        log(f"WARN: {netdev}: ignoring MTU '{nic.mtu}', not using VirtIO")
        return 0
    if nic.mtu > bridge_mtu:
        raise MachineError(
            f"{netdev}: MTU '{nic.mtu}' is bigger than the bridge MTU '{bridge_mtu}' - adjust the MTU for"
            " the network device in the VM configuration, while ensuring that the bridge is configured"
            " as desired."
        )
    if 1 < nic.mtu < MIN_MTU:
        raise MachineError(f"{netdev}: MTU '{nic.mtu}' is smaller than the IP minimum MTU '{MIN_MTU}'")
    return nic.mtu if nic.mtu > 1 else 0


def vhost_works() -> bool:
    """Whether the kernel's virtio back end can be used. The device may exist and still not open."""
    try:
        os.close(os.open("/dev/vhost-net", os.O_RDWR))
    except OSError:
        return False
    return True


# The host end of a container's NICs: one end of a veth pair each, on its bridge, with its rate cap.


def check(index: int, nic: ContainerNic) -> None:
    """MachineError with PVE's text if a NIC cannot be plugged: no such bridge, its VLAN or MTU."""
    check_bridge(index, nic)
    if nic.bridge and (problem := vlan_problem(nic.bridge, nic.tag, nic.trunks)):
        raise MachineError(problem)


def check_bridge(index: int, nic: ContainerNic) -> None:
    """MachineError with PVE's text if a NIC's bridge does not exist or does not carry its MTU."""
    if nic.bridge:
        links.bridge_mtu(nic.bridge)
        check_mtu(index, nic)


def check_mtu(index: int, nic: ContainerNic) -> None:
    """MachineError with PVE's text if the bridge does not carry the NIC's MTU, or there is no bridge."""
    if nic.mtu and nic.mtu > (limit := links.bridge_mtu(nic.bridge or "")):
        raise MachineError(f"net{index}: MTU size '{nic.mtu}' is bigger than bridge MTU '{limit}'")


def finish_start(vmid: int, nics: Mapping[int, ContainerNic], log: Log) -> None:
    """Do what LXC does not do for the NICs of a container that it starts: VLANs, rate caps, link down."""
    for index, nic in nics.items():
        device = host_name(vmid, index)
        if nic.link_down or nic.bridge:
            connect(device, nic)
        if nic.rate_bytes:
            apply_rate(device, index, nic, log)


def plug_veth(vmid: int, index: int, nic: ContainerNic, init_pid: int, log: Log) -> None:
    """Add a NIC to a running container, whose first process is ``init_pid``."""
    device, peer = host_name(vmid, index), f"tmp{vmid}i{index}"
    mtu = str(nic.mtu or (links.bridge_mtu(nic.bridge) if nic.bridge else 1500))
    words = ["ip", "link", "add", device, "mtu", mtu, "type", "veth", "peer", "name", peer, "mtu", mtu]
    process.run([*words, "address", nic.mac])
    try:
        process.run(["ip", "link", "set", "dev", peer, "netns", str(init_pid), "name", nic.name])
        _run_inside(init_pid, ["ip", "link", "set", "dev", nic.name, "up"])
        connect(device, nic)
        apply_rate(device, index, nic, log)
    except MachineError:
        links.unplug([device])
        raise


def connect(device: str, nic: ContainerNic) -> None:
    """Attach the host end to its bridge, or take it down if the NIC is to be disconnected."""
    if nic.link_down or nic.bridge is None:
        process.run(["ip", "link", "set", "dev", device, "nomaster", "down"])
    else:
        process.run(["ip", "link", "set", "dev", device, "master", nic.bridge])
        apply_vlans(device, nic.bridge, nic.tag, nic.trunks)
        process.run(["ip", "link", "set", "dev", device, "up"])


def change_addresses(init_pid: int, old: ContainerNic | None, new: ContainerNic) -> None:
    """Give a running container's NIC the static addresses of ``new`` instead of those of ``old``."""
    for address in old.addresses if old else []:
        if address not in new.addresses:
            _run_inside(init_pid, ["ip", "address", "delete", address, "dev", new.name])
    for address in new.addresses:
        _run_inside(init_pid, ["ip", "address", "replace", address, "dev", new.name])
    for flag, gateway in (("-4", new.gateway), ("-6", new.gateway6)):
        if gateway:
            _run_inside(
                init_pid, ["ip", flag, "route", "replace", "default", "via", gateway, "dev", new.name]
            )


def interfaces(init_pid: int) -> list[dict[str, object]]:
    """Return the interfaces of a running container, as the API shows them.

    PVE repeats some values under an older name (``hwaddr``, ``inet``, ``inet6``) and gives prefix lengths
    as text.
    """
    rows = process.run_json(_inside(init_pid, ["ip", "-j", "address"])) or []
    return [_api_row(row) for row in rows if row]


def _api_row(row: dict[str, Any]) -> dict[str, object]:
    mac, addresses = row.get("address", ""), row.get("addr_info", [])
    fields: dict[str, object] = {"name": row["ifname"], "hwaddr": mac, "hardware-address": mac}
    for address in reversed(addresses):  # so that the first of each family stays
        fields[address["family"]] = f"{address['local']}/{address['prefixlen']}"
    fields["ip-addresses"] = [
        {
            "ip-address": address["local"],
            "ip-address-type": address["family"],
            "prefix": str(address["prefixlen"]),
        }
        for address in addresses
    ]
    return fields


def _run_inside(init_pid: int, words: list[str]) -> None:
    """Run a program of the host in a container's network namespace."""
    process.run(_inside(init_pid, words))


def _inside(init_pid: int, words: list[str]) -> list[str]:
    return ["nsenter", f"--net=/proc/{init_pid}/ns/net", *words]
