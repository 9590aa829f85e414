"""The rate cap of a NIC (``rate``), as Proxmox VE sets it (pve-common, Network.pm, tap_rate_limit).

Towards the guest, an HTB class on the host's device shapes: frames above the rate wait in a queue. From the
guest, a policer on the device's ingress drops frames above the rate. Both get a burst of 1 MiB; HTB makes
no use of it, because the bucket of its ceiling holds one frame only.

A kernel without act_police or cls_basic redirects the guest's traffic to an ifb device with the same HTB
class instead. That shapes where a real node polices, so results name it differently ("shape-ifb", not
"police").
"""

from __future__ import annotations

from minipve.base import process
from minipve.base.process import MachineError
from minipve.config.container_nics import ContainerNic
from minipve.config.nics import Nic
from minipve.network import links
from minipve.network.links import Command, Log

BURST = "1048576b"


def apply(device: str, index: int, nic: Nic | ContainerNic, log: Log) -> None:
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
