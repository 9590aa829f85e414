"""The host end of a container's NICs: one end of a veth pair each, on its bridge, with its rate cap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minipve.base import process
from minipve.base.process import MachineError
from minipve.config.container_nics import ContainerNic, host_name
from minipve.network import links, rate, vlans
from minipve.network.links import Log


def check(index: int, nic: ContainerNic) -> None:
    """MachineError with PVE's text if a NIC cannot be plugged: no such bridge, its VLAN or MTU."""
    check_bridge(index, nic)
    if nic.bridge and (problem := vlans.problem(nic.bridge, nic.tag, nic.trunks)):
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
            rate.apply(device, index, nic, log)


def plug(vmid: int, index: int, nic: ContainerNic, init_pid: int, log: Log) -> None:
    """Add a NIC to a running container, whose first process is ``init_pid``."""
    device, peer = host_name(vmid, index), f"tmp{vmid}i{index}"
    mtu = str(nic.mtu or (links.bridge_mtu(nic.bridge) if nic.bridge else 1500))
    words = ["ip", "link", "add", device, "mtu", mtu, "type", "veth", "peer", "name", peer, "mtu", mtu]
    process.run([*words, "address", nic.mac])
    try:
        process.run(["ip", "link", "set", "dev", peer, "netns", str(init_pid), "name", nic.name])
        _run_inside(init_pid, ["ip", "link", "set", "dev", nic.name, "up"])
        connect(device, nic)
        rate.apply(device, index, nic, log)
    except MachineError:
        links.unplug([device])
        raise


def connect(device: str, nic: ContainerNic) -> None:
    """Attach the host end to its bridge, or take it down if the NIC is to be disconnected."""
    if nic.link_down or nic.bridge is None:
        process.run(["ip", "link", "set", "dev", device, "nomaster", "down"])
    else:
        process.run(["ip", "link", "set", "dev", device, "master", nic.bridge])
        vlans.apply(device, nic.bridge, nic.tag, nic.trunks)
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
