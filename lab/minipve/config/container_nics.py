"""A container's NIC as its config says it: ``name=eth0,bridge=vmbr1,ip=10.77.0.11/24,rate=12.5``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from minipve.config import nics, schema
from minipve.config.kinds import LXC


@dataclass(frozen=True)
class ContainerNic:
    """One ``netN``; ``mac`` in upper case, ``rate_mib`` in MiB/s, ``ip`` an address with prefix or a word."""

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
    host_managed: bool = False

    @property
    def rate_bytes(self) -> int | None:
        """The rate in bytes/s; a negative one, which PVE takes, is none."""
        return nics.rate_bytes(self.rate_mib) if self.rate_mib and self.rate_mib > 0 else None

    @property
    def addresses(self) -> list[str]:
        """The fixed addresses, with their prefix."""
        return [address for address in (self.ip, self.ip6) if "/" in address]


def parse(text: str) -> ContainerNic:
    """A NIC from its config string; FormatError for what the schema refuses."""
    given = schema.parse_option("net0", text, LXC)
    return ContainerNic(
        name=given["name"],
        mac=given.get("hwaddr", "").upper(),
        bridge=given.get("bridge"),
        ip=given.get("ip", ""),
        gateway=given.get("gw", ""),
        ip6=given.get("ip6", ""),
        gateway6=given.get("gw6", ""),
        rate_mib=float(given.get("rate", 0)) or None,
        link_down=given.get("link_down") == "1",
        mtu=int(given.get("mtu", 0)),
        tag=int(given["tag"]) if "tag" in given else None,
        host_managed=given.get("host-managed") == "1",
    )


def of_config(config: Mapping[str, str]) -> dict[int, ContainerNic]:
    """All NICs of a config, by index."""
    found = ((re.fullmatch(r"net(\d+)", key), value) for key, value in config.items())
    return dict(sorted((int(match[1]), parse(value)) for match, value in found if match))


def needs_new_device(old: ContainerNic, new: ContainerNic) -> bool:
    """Whether the container must get another device: its MAC address or its name."""
    return (old.mac, old.name) != (new.mac, new.name)


def canonical(text: str) -> str:
    """The canonical text as PVE stores it: sorted, with a type, and a new MAC address where none is given."""
    given = schema.parse_option("net0", text, LXC)
    filled = {"hwaddr": nics.new_mac()} | given | {"type": "veth"}
    filled["hwaddr"] = filled["hwaddr"].upper()
    return _text(filled)


def with_new_mac(text: str) -> str:
    """A clone's NIC: the same but for a new MAC."""
    return _text(schema.parse_option("net0", text, LXC) | {"hwaddr": nics.new_mac()})


def _text(parts: Mapping[str, str]) -> str:
    """The canonical text; the bridge stands behind the name, as PVE has it."""
    first = [key for key in ("name", "bridge") if key in parts]
    return ",".join(f"{key}={parts[key]}" for key in [*first, *sorted(set(parts) - set(first))])


def host_name(vmid: int, index: int) -> str:
    """The host's end of a NIC."""
    return f"veth{vmid}i{index}"
