"""The host's side of a container's NICs: one end of a pair each, on its bridge, at its rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minipve import process
from minipve.config.container_nics import ContainerNic, host_name
from minipve.network import net, rate
from minipve.process import MachineError

Log = Callable[[str], None]


def check(index: int, nic: ContainerNic) -> None:
    """PVE's text for a NIC that cannot be plugged: no such bridge, a VLAN or MTU that it does not carry."""
    check_start(index, nic)
    if nic.bridge and nic.tag:
        raise MachineError(no_vlans(nic.bridge))


def check_start(index: int, nic: ContainerNic) -> None:
    """PVE's text for a NIC that no configuration for LXC can be written for."""
    if nic.bridge:
        net.bridge_mtu(nic.bridge)
        check_mtu(index, nic)


def check_mtu(index: int, nic: ContainerNic) -> None:
    """PVE's text for an MTU that the NIC's bridge does not carry, or has no bridge to carry it."""
    if nic.mtu and nic.mtu > (most := net.bridge_mtu(nic.bridge or "")):
        raise MachineError(f"net{index}: MTU size '{nic.mtu}' is bigger than bridge MTU '{most}'")


def no_vlans(bridge: str) -> str:
    """PVE's text for a VLAN on a bridge without a port to the outside."""
    return f"no physical interface on bridge '{bridge}'"


def settle(vmid: int, nics: Mapping[int, ContainerNic], log: Log) -> None:
    """What LXC does not do for a fresh container's NICs: their rate, a link that is to be down."""
    for index, nic in nics.items():
        device = host_name(vmid, index)
        if nic.link_down:
            process.run(["ip", "link", "set", "dev", device, "nomaster", "down"])
        if nic.rate_bytes:
            set_rate(device, index, nic, log)


def set_rate(device: str, index: int, nic: ContainerNic, log: Log) -> None:
    """Apply a NIC's rate and say how its container's own traffic is limited."""
    method = rate.set_rate(device, nic.rate_bytes)
    if method:
        log(f"net{index}: rate {nic.rate_mib} MiB/s to the container by htb, from it by {method}")


def plug(vmid: int, index: int, nic: ContainerNic, pid: int, log: Log) -> None:
    """Give a running container (its first process is ``pid``) another NIC."""
    device, peer = host_name(vmid, index), f"tmp{vmid}i{index}"
    mtu = str(nic.mtu or (net.bridge_mtu(nic.bridge) if nic.bridge else 1500))
    words = ["ip", "link", "add", device, "mtu", mtu, "type", "veth", "peer", "name", peer, "mtu", mtu]
    process.run([*words, "address", nic.mac])
    try:
        process.run(["ip", "link", "set", "dev", peer, "netns", str(pid), "name", nic.name])
        inside(pid, ["ip", "link", "set", "dev", nic.name, "up"])
        connect(device, nic)
        set_rate(device, index, nic, log)
    except MachineError:
        net.unplug([device])
        raise


def connect(device: str, nic: ContainerNic) -> None:
    """Hang the host's end on its bridge, or with ``link_down`` on none."""
    if nic.link_down or nic.bridge is None:
        process.run(["ip", "link", "set", "dev", device, "nomaster", "down"])
    else:
        process.run(["ip", "link", "set", "dev", device, "master", nic.bridge, "up"])


def address(pid: int, old: ContainerNic | None, new: ContainerNic) -> None:
    """Change the fixed addresses of a running container's NIC to those of ``new``."""
    for gone in old.addresses if old else []:
        if gone not in new.addresses:
            inside(pid, ["ip", "address", "delete", gone, "dev", new.name])
    for wanted in new.addresses:
        inside(pid, ["ip", "address", "replace", wanted, "dev", new.name])
    for flag, gateway in (("-4", new.gateway), ("-6", new.gateway6)):
        if gateway:
            inside(pid, ["ip", flag, "route", "replace", "default", "via", gateway, "dev", new.name])


def addresses(pid: int) -> list[dict[str, object]]:
    """The interfaces of a container as PVE tells them: old names beside the new, prefixes as text."""
    rows = process.run_json(_entering(pid, ["ip", "-j", "address"])) or []
    return [_told(row) for row in rows if row]


def _told(row: dict[str, Any]) -> dict[str, object]:
    mac, found = row.get("address", ""), row.get("addr_info", [])
    listed = [
        {"ip-address": one["local"], "ip-address-type": one["family"], "prefix": str(one["prefixlen"])}
        for one in found
    ]
    told: dict[str, object] = {"name": row["ifname"], "hwaddr": mac, "hardware-address": mac}
    for one in reversed(found):  # the first of each family
        told[one["family"]] = f"{one['local']}/{one['prefixlen']}"
    return told | {"ip-addresses": listed}


def inside(pid: int, words: list[str]) -> str:
    """Run a program of the host in the network of a container's process."""
    return process.run(_entering(pid, words))


def _entering(pid: int, words: list[str]) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *words]
