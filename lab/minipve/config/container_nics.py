"""A container's ``netN`` option: ``name=eth0,bridge=vmbr1,ip=10.77.0.11/24,rate=12.5``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from minipve.config import nics
from minipve.config.rules import schema
from minipve.config.rules.schema import LXC


@dataclass(frozen=True)
class ContainerNic:
    """A parsed ``netN``: ``mac`` in upper case, ``ip`` an address with prefix, ``dhcp`` or ``manual``."""

    name: str
    mac: str
    bridge: str | None = None
    ip: str = ""
    gateway: str = ""
    ip6: str = ""
    gateway6: str = ""
    rate_mib: float | None = None
    link_down: bool = False
    mtu: int = 0
    tag: int | None = None
    trunks: str = ""
    host_managed: bool = False

    @property
    def rate_bytes(self) -> int | None:
        """The rate in bytes/s. PVE accepts negative rates and ignores them."""
        return nics.rate_bytes(self.rate_mib) if self.rate_mib and self.rate_mib > 0 else None

    @property
    def connection(self) -> tuple[str | None, int | None, str, bool]:
        """The bridge and the VLANs to which the NIC is connected, and whether its link is down."""
        return self.bridge, self.tag, self.trunks, self.link_down

    @property
    def addresses(self) -> list[str]:
        """The static addresses, with their prefix."""
        return [address for address in (self.ip, self.ip6) if "/" in address]


def parse(text: str) -> ContainerNic:
    """Parse an option. Raises FormatError when the schema refuses it."""
    parts = schema.parse_option("net0", text, LXC)
    return ContainerNic(
        name=parts["name"],
        mac=parts.get("hwaddr", "").upper(),
        bridge=parts.get("bridge"),
        ip=parts.get("ip", ""),
        gateway=parts.get("gw", ""),
        ip6=parts.get("ip6", ""),
        gateway6=parts.get("gw6", ""),
        rate_mib=float(parts.get("rate", 0)) or None,
        link_down=parts.get("link_down") == "1",
        mtu=int(parts.get("mtu", 0)),
        tag=int(parts["tag"]) if "tag" in parts else None,
        trunks=parts.get("trunks", ""),
        host_managed=parts.get("host-managed") == "1",
    )


def of_config(config: Mapping[str, str]) -> dict[int, ContainerNic]:
    """Return all NICs of a configuration by index."""
    matches = ((re.fullmatch(r"net(\d+)", key), value) for key, value in config.items())
    return dict(sorted((int(match[1]), parse(value)) for match, value in matches if match))


def needs_new_device(old: ContainerNic, new: ContainerNic) -> bool:
    """Return whether a change needs a new device: another MAC address or another name."""
    return (old.mac, old.name) != (new.mac, new.name)


def canonical(text: str) -> str:
    """Return the text as PVE stores it: sorted, with a type, and a new MAC address if there is none."""
    parts = schema.parse_option("net0", text, LXC)
    filled = {"hwaddr": nics.new_mac()} | parts | {"type": "veth"}
    filled["hwaddr"] = filled["hwaddr"].upper()
    return _text(filled)


def with_new_mac(text: str) -> str:
    """Return a clone's NIC: the same with a new MAC address."""
    return _text(schema.parse_option("net0", text, LXC) | {"hwaddr": nics.new_mac()})


def _text(parts: Mapping[str, str]) -> str:
    """Return the canonical text. PVE writes the bridge directly after the name."""
    first = [key for key in ("name", "bridge") if key in parts]
    return ",".join(f"{key}={parts[key]}" for key in [*first, *sorted(set(parts) - set(first))])


def host_name(vmid: int, index: int) -> str:
    """Return the name of the host's end of a NIC."""
    return f"veth{vmid}i{index}"
