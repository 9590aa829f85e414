"""A machine's NIC as its config says it: ``virtio=02:DA:...,bridge=vmbr1,rate=12.5``.

NICs are compared parsed, never as strings. Here too is the one conversion of ``rate``, whose unit is MiB/s.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from minipve.config import schema


@dataclass(frozen=True)
class Nic:
    """One ``netN``; ``mac`` in upper case, ``rate_mib`` MiB/s or None; ``mtu``, ``queues`` 0 if not given."""

    model: str
    mac: str
    bridge: str | None = None
    rate_mib: float | None = None
    link_down: bool = False
    mtu: int = 0
    queues: int = 0
    tag: int | None = None

    @property
    def rate_bytes(self) -> int | None:
        """The rate in bytes/s."""
        return rate_bytes(self.rate_mib)


def rate_bytes(rate_mib: float | None) -> int | None:
    """A rate as Proxmox VE hands it to tc, in bytes/s (pve-common Network.pm)."""
    return None if rate_mib is None else int(rate_mib * 1024 * 1024)


def parse(text: str) -> Nic:
    """A NIC from its config string, in any order of keys; FormatError for what the schema refuses."""
    given = schema.parse_option("net0", text)
    return Nic(
        model=given["model"],
        mac=given.get("macaddr", "").upper(),
        bridge=given.get("bridge"),
        rate_mib=float(given.get("rate", 0)) or None,
        link_down=given.get("link_down") == "1",
        mtu=int(given.get("mtu", 0)),
        queues=int(given.get("queues", 0)),
        tag=int(given["tag"]) if "tag" in given else None,
    )


def of_config(config: Mapping[str, str]) -> dict[int, Nic]:
    """All NICs of a config, by index."""
    found = ((re.fullmatch(r"net(\d+)", key), value) for key, value in config.items())
    return {int(match[1]): parse(value) for match, value in found if match}


def needs_new_device(old: Nic, new: Nic) -> bool:
    """Whether the guest must get another NIC: model, MAC, queues, MTU, or bridge against NAT."""
    kept = [(nic.model, nic.mac, nic.queues, nic.mtu, nic.bridge is None) for nic in (old, new)]
    return kept[0] != kept[1]


def canonical(text: str) -> str:
    """The canonical text, with a new MAC address where none is given."""
    return schema.option_text("net0", {"macaddr": new_mac()} | schema.parse_option("net0", text))


def with_new_mac(text: str) -> str:
    """A clone's NIC: the same but for a new MAC."""
    return schema.option_text("net0", schema.parse_option("net0", text) | {"macaddr": new_mac()})


def new_mac() -> str:
    """A random MAC address with PVE's prefix."""
    return "BC:24:11:" + ":".join(f"{byte:02X}" for byte in secrets.token_bytes(3))


def tap_name(vmid: int, index: int) -> str:
    """The host side of a NIC."""
    return f"tap{vmid}i{index}"
