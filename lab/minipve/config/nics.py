"""A VM's ``netN`` option: ``virtio=02:DA:...,bridge=vmbr1,rate=12.5``.

Compare NICs in parsed form, never as strings. The only conversion of ``rate`` (MiB/s) is here, too.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from minipve.config.rules import schema


@dataclass(frozen=True)
class Nic:
    """A parsed ``netN``: ``mac`` in upper case, ``rate_mib`` in MiB/s, ``mtu`` and ``queues`` 0 if unset."""

    model: str
    mac: str
    bridge: str | None = None
    rate_mib: float | None = None
    link_down: bool = False
    mtu: int = 0
    queues: int = 0
    tag: int | None = None
    trunks: str = ""

    @property
    def connection(self) -> tuple[str | None, int | None, str]:
        """The bridge and the VLANs to which the NIC is connected."""
        return self.bridge, self.tag, self.trunks

    @property
    def rate_bytes(self) -> int | None:
        return rate_bytes(self.rate_mib)


def rate_bytes(rate_mib: float | None) -> int | None:
    """Convert a rate to bytes/s, with the rounding of pve-common's Network.pm."""
    return None if rate_mib is None else int(rate_mib * 1024 * 1024)


def parse(text: str) -> Nic:
    """Parse an option, with its keys in any order. Raises FormatError when the schema refuses it."""
    parts = schema.parse_option("net0", text)
    return Nic(
        model=parts["model"],
        mac=parts.get("macaddr", "").upper(),
        bridge=parts.get("bridge"),
        rate_mib=float(parts.get("rate", 0)) or None,
        link_down=parts.get("link_down") == "1",
        mtu=int(parts.get("mtu", 0)),
        queues=int(parts.get("queues", 0)),
        tag=int(parts["tag"]) if "tag" in parts else None,
        trunks=parts.get("trunks", ""),
    )


def of_config(config: Mapping[str, str]) -> dict[int, Nic]:
    """Return all NICs of a configuration by index."""
    matches = ((re.fullmatch(r"net(\d+)", key), value) for key, value in config.items())
    return {int(match[1]): parse(value) for match, value in matches if match}


def needs_new_device(old: Nic, new: Nic) -> bool:
    """Return whether a change needs a new device: model, MAC, queues, MTU, or from a bridge to NAT."""
    before, after = ((nic.model, nic.mac, nic.queues, nic.mtu, nic.bridge is None) for nic in (old, new))
    return before != after


def canonical(text: str) -> str:
    """Return the canonical text, with a new MAC address if there is none."""
    return schema.option_text("net0", {"macaddr": new_mac()} | schema.parse_option("net0", text))


def with_new_mac(text: str) -> str:
    """Return a clone's NIC: the same with a new MAC address."""
    return schema.option_text("net0", schema.parse_option("net0", text) | {"macaddr": new_mac()})


def new_mac() -> str:
    """Return a random MAC address with PVE's prefix."""
    return "BC:24:11:" + ":".join(f"{byte:02X}" for byte in secrets.token_bytes(3))


def tap_name(vmid: int, index: int) -> str:
    """Return the name of the interface on the host's side of a NIC."""
    return f"tap{vmid}i{index}"
