"""/etc/network/interfaces, as far as a node with bridges needs it, in ifupdown2's syntax.

What is not understood is kept: an attribute in ``options`` (Proxmox VE shows `bridge-ageing 0` there, and
only there), so that reading and writing a file loses nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from minipve.user_error import UserError

DEFAULT_AGEING_S = 300
HEAD = "# Read by minipve as ifupdown2 reads /etc/network/interfaces; options it does not know are kept.\n"
ATTRIBUTES = {
    "address": "address",
    "gateway": "gateway",
    "mtu": "mtu",
    "bridge-ports": "ports",
    "bridge-stp": "stp",
    "bridge-fd": "forward_delay",
    "bridge-vlan-aware": "vlan_aware",
    "bridge-vids": "vids",
}


@dataclass(frozen=True)
class Iface:
    """One ``iface`` stanza; values as written, "" when absent; ``address`` is in CIDR notation."""

    name: str
    method: str = "manual"
    auto: bool = True
    address: str = ""
    gateway: str = ""
    mtu: str = ""
    ports: str = ""
    stp: str = ""
    forward_delay: str = ""
    vlan_aware: str = ""
    vids: str = ""
    options: tuple[str, ...] = ()
    comments: str = ""

    @property
    def is_bridge(self) -> bool:
        """Whether the stanza makes a bridge, which `bridge-ports` tells."""
        return bool(self.ports)

    @property
    def ageing_s(self) -> int:
        """``bridge-ageing`` in seconds (ifupdown2: 0..65535, default 300); 0 makes the bridge flood."""
        found = self.option("bridge-ageing")
        return int(found) if re.fullmatch(r"[0-9]+", found) else DEFAULT_AGEING_S

    @property
    def vxlan_id(self) -> str:
        """The number of a tunnel between nodes; "" when the stanza makes none."""
        return self.option("vxlan-id")

    def option(self, name: str) -> str:
        """The value of an attribute among ``options``; "" when absent."""
        return next(iter(self.options_named(name)), "")

    def options_named(self, name: str) -> list[str]:
        """All values of an attribute that may stand several times; names with ``-`` or ``_``."""
        words = [option.replace("\t", " ").partition(" ") for option in self.options]
        return [value.strip() for key, _, value in words if key.replace("_", "-") == name.replace("_", "-")]


def bridge(name: str, address: str = "", comments: str = "") -> Iface:
    """A bridge without ports, as `POST /nodes/{node}/network` makes it."""
    method = "static" if address else "manual"
    return Iface(name, method, address=address, ports="none", stp="off", forward_delay="0", comments=comments)


def default(management: str) -> dict[str, Iface]:
    """A new node's configuration: loopback and ``vmbr0`` with the node's management address (CIDR)."""
    return {"lo": Iface("lo", "loopback"), "vmbr0": bridge("vmbr0", management)}


@dataclass
class _Parser:
    """Collects stanzas; attributes and comments go to the stanza that is open."""

    auto: set[str] = field(default_factory=set)
    found: dict[str, Iface] = field(default_factory=dict)
    current: str = ""

    def line(self, text: str) -> None:
        words = text.split()
        if words[0] == "iface" and len(words) < 2:
            raise ValueError("iface without a name")
        if words[0] in ("auto", "allow-auto", "allow-hotplug"):
            self.auto.update(words[1:])
            self.current = ""
        elif words[0] == "iface":
            self.current = words[1]
            self.found.setdefault(words[1], Iface(words[1], words[3] if len(words) > 3 else "manual"))
        elif self.current and text.startswith("#"):
            iface = self.found[self.current]
            self.found[self.current] = replace(iface, comments=iface.comments + text[1:] + "\n")
        elif self.current:
            self.found[self.current] = _with(self.found[self.current], words[0], " ".join(words[1:]))


def _with(iface: Iface, key: str, value: str) -> Iface:
    attribute = ATTRIBUTES.get(key.replace("_", "-"))
    if attribute == "address":
        ipaddress.ip_interface(value)
    if attribute == "mtu" and not re.fullmatch(r"[0-9]{2,5}", value):
        raise ValueError(f"strange MTU '{value}'")
    if attribute is None:
        return replace(iface, options=(*iface.options, f"{key} {value}".strip()))
    return replace(iface, **{attribute: value})  # type: ignore[arg-type]


def read_interfaces(text: str) -> dict[str, Iface]:
    """All interfaces of a file, in its order; ValueError, with the line, for what is none (pure)."""
    parser = _Parser()
    for number, line in enumerate(text.replace("\\\n", " ").split("\n"), 1):
        try:
            if line.strip():
                parser.line(line.strip())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return {name: replace(iface, auto=name in parser.auto) for name, iface in parser.found.items()}


def load(file: Path) -> dict[str, Iface]:
    """All interfaces of a file; UserError, with the place and what mends it, when it is damaged."""
    try:
        data = file.read_bytes()
        if b"\0" in data:
            raise ValueError("it is no text")
        return read_interfaces(data.decode())
    except ValueError as error:
        hint = f"mend it, or start afresh with vmbr0 alone: rm {file}; minipve stop"
        raise UserError(f"{file} is damaged: {error}", hint) from error


def write_interfaces(interfaces: Mapping[str, Iface]) -> str:
    """The file that says so; reading it back gives the same (pure)."""
    return "\n".join([HEAD, *(_stanza(iface) for iface in interfaces.values())])


def _stanza(iface: Iface) -> str:
    lines = [f"auto {iface.name}"] if iface.auto else []
    lines.append(f"iface {iface.name} inet {iface.method}")
    for key, attribute in ATTRIBUTES.items():
        if value := getattr(iface, attribute):
            lines.append(f"\t{key} {value}")
    lines += [f"\t{option}" for option in iface.options]
    lines += [f"#{line}" for line in iface.comments.splitlines()]
    return "\n".join([*lines, ""])
