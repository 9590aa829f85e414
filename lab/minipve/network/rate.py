"""A NIC's ``rate``: what Proxmox VE runs, and an honest stand-in where the kernel lacks policing.

To the guest the rate is a token bucket on the tap (HTB, shaped: frames wait); from the guest it is a
policer on the tap's ingress (frames over the rate are dropped). Both are given a burst of 1 MiB (pve-common,
Network.pm, tap_rate_limit); HTB lets none of it through, as its ceiling has a bucket too, of one frame. A
kernel without act_police or cls_basic gets, from the guest, a redirect to an ifb device with the same token
bucket: that one *shapes*, and so has another name in every result.
"""

from __future__ import annotations

from minipve import process
from minipve.network import net
from minipve.network.net import Command
from minipve.process import MachineError

BURST = "1048576b"


def set_rate(tap: str, rate_bytes: int | None) -> str:
    """Apply, change or (None) lift the rate (bytes/s) of a live tap, without touching its link.

    Returns how the guest's own traffic is limited: "police", "shape-ifb", or "" without a rate.
    """
    _clear(tap)
    if not rate_bytes:
        return ""
    rate = f"{rate_bytes}bps"
    for command in to_guest(tap, rate):
        process.run(command)
    for method, commands in from_guest(tap, rate).items():
        if _works(commands):
            return method.partition(" ")[0]
    raise MachineError(f"tc of this kernel can limit nothing on {tap}: no act_police, no ifb")


def _clear(tap: str) -> None:
    for command in remove(tap):
        _works([command])
    if net.exists(net.ifb_name(tap)):
        process.run(["ip", "link", "delete", "dev", net.ifb_name(tap)])


def _works(commands: list[Command]) -> bool:
    """Run commands; False at the first that the kernel refuses."""
    try:
        for command in commands:
            process.run(command)
    except MachineError:
        return False
    return True


def remove(tap: str) -> list[Command]:
    """What Proxmox VE runs before each change; each may fail (pure)."""
    return [
        ["tc", "class", "del", "dev", tap, "parent", "1:", "classid", "1:1"],
        ["tc", "filter", "del", "dev", tap, "parent", "ffff:", "protocol", "all", "pref", "50", "u32"],
        ["tc", "qdisc", "del", "dev", tap, "ingress"],
        ["tc", "qdisc", "del", "dev", tap, "root"],
    ]


def to_guest(device: str, rate: str) -> list[Command]:
    """The token bucket on a device's way out (pure); ``rate`` with tc's unit ``bps``, bytes/s."""
    return [
        ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"],
        [
            *("tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1"),
            *("htb", "rate", rate, "burst", BURST),
        ],
    ]


def from_guest(tap: str, rate: str) -> dict[str, list[Command]]:
    """The ways to limit what a guest sends, best first, by method; to be tried in this order (pure)."""
    ifb = net.ifb_name(tap)
    every = ["u32", "match", "u32", "0", "0"]
    ingress = ["tc", "qdisc", "add", "dev", tap, "handle", "ffff:", "ingress"]
    add = ["tc", "filter", "add", "dev", tap, "parent", "ffff:"]
    police = ["police", "rate", rate, "burst", BURST, "mtu", "64kb", "drop"]
    redirect = ["action", "mirred", "egress", "redirect", "dev", ifb]
    return {
        "police": [ingress, [*add, "prio", "50", "basic", *police]],
        "police by u32": [[*add, "protocol", "all", "prio", "50", *every, *police]],
        "shape-ifb": [
            ["ip", "link", "add", ifb, "type", "ifb"],
            ["ip", "link", "set", ifb, "up"],
            *to_guest(ifb, rate),
            [*add, "protocol", "all", "prio", "50", *every, *redirect],
        ],
    }
