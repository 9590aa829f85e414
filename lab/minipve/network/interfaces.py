"""Read and write /etc/network/interfaces in ifupdown2's syntax, as far as a node with bridges needs it.

An attribute without a field of its own is kept in ``options``, so that reading and writing a file loses
nothing. Proxmox VE shows `bridge-ageing 0` there too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from minipve.base.errors import UserError

DEFAULT_AGEING_S = 300
HEAD = "# minipve reads this file as ifupdown2 does, and keeps the options that it does not use.\n"
FIELDS = {  # attribute in the file -> field of Iface
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
    """One ``iface`` stanza. Values are as written, "" when absent; ``address`` is in CIDR notation."""

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
        """Whether the stanza describes a bridge: it has `bridge-ports`, even if that is "none"."""
        return bool(self.ports)

    @property
    def is_vlan_aware(self) -> bool:
        return self.vlan_aware == "yes"

    @property
    def ageing_s(self) -> int:
        """``bridge-ageing`` in seconds (0 to 65535, default 300); at 0 the bridge floods every frame."""
        value = self.option("bridge-ageing")
        return int(value) if re.fullmatch(r"[0-9]+", value) else DEFAULT_AGEING_S

    @property
    def vxlan_id(self) -> str:
        """The VXLAN network identifier of a tunnel; "" if the stanza describes no tunnel."""
        return self.option("vxlan-id")

    def option(self, name: str) -> str:
        """Return the first value of an attribute among ``options``, or "" if it is absent."""
        return next(iter(self.options_named(name)), "")

    def options_named(self, name: str) -> list[str]:
        """Return all values of an attribute among ``options``; ``-`` and ``_`` in its name are equal."""
        words = [option.replace("\t", " ").partition(" ") for option in self.options]
        return [value.strip() for key, _, value in words if key.replace("_", "-") == name.replace("_", "-")]


def bridge(name: str, address: str = "", comments: str = "") -> Iface:
    """A bridge without ports, as `POST /nodes/{node}/network` creates it."""
    method = "static" if address else "manual"
    return Iface(name, method, address=address, ports="none", stp="off", forward_delay="0", comments=comments)


def default(management: str) -> dict[str, Iface]:
    """A new node's configuration: loopback and ``vmbr0`` with the node's management address (CIDR)."""
    return {"lo": Iface("lo", "loopback"), "vmbr0": bridge("vmbr0", management)}


@dataclass
class _Parser:
    """Collects stanzas. Attributes and comments belong to the ``current`` one."""

    auto: set[str] = field(default_factory=set)
    stanzas: dict[str, Iface] = field(default_factory=dict)
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
            self.stanzas.setdefault(words[1], Iface(words[1], words[3] if len(words) > 3 else "manual"))
        elif self.current and text.startswith("#"):
            iface = self.stanzas[self.current]
            self.stanzas[self.current] = replace(iface, comments=iface.comments + text[1:] + "\n")
        elif self.current:
            iface = self.stanzas[self.current]
            self.stanzas[self.current] = _with_attribute(iface, words[0], " ".join(words[1:]))


def _with_attribute(iface: Iface, key: str, value: str) -> Iface:
    name = FIELDS.get(key.replace("_", "-"))
    if name == "address":
        ipaddress.ip_interface(value)
    if name == "mtu" and not re.fullmatch(r"[0-9]{2,5}", value):
        raise ValueError(f"strange MTU '{value}'")
    if name is None:
        return replace(iface, options=(*iface.options, f"{key} {value}".strip()))
    return replace(iface, **{name: value})  # type: ignore[arg-type]


def read_interfaces(text: str) -> dict[str, Iface]:
    """Parse the text of an interfaces file, in its order (pure).

    Raises:
        ValueError: a line is invalid; the message names it.
    """
    parser = _Parser()
    for number, line in enumerate(text.replace("\\\n", " ").split("\n"), 1):
        try:
            if line.strip():
                parser.line(line.strip())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return {name: replace(iface, auto=name in parser.auto) for name, iface in parser.stanzas.items()}


def load(file: Path) -> dict[str, Iface]:
    """Read an interfaces file.

    Raises:
        UserError: the file is damaged; the message names the line and what repairs it.
    """
    try:
        data = file.read_bytes()
        if b"\0" in data:
            raise ValueError("it is not text")
        return read_interfaces(data.decode())
    except ValueError as error:
        hint = f"repair it, or start over with vmbr0 only: rm {file}; minipve stop"
        raise UserError(f"{file} is damaged: {error}", hint) from error


def write_interfaces(interfaces: Mapping[str, Iface]) -> str:
    """Return the text of an interfaces file; `read_interfaces` reads the same back (pure)."""
    return "\n".join([HEAD, *(_stanza(iface) for iface in interfaces.values())])


def _stanza(iface: Iface) -> str:
    lines = [f"auto {iface.name}"] if iface.auto else []
    lines.append(f"iface {iface.name} inet {iface.method}")
    for key, name in FIELDS.items():
        if value := getattr(iface, name):
            lines.append(f"\t{key} {value}")
    lines += [f"\t{option}" for option in iface.options]
    lines += [f"#{line}" for line in iface.comments.splitlines()]
    return "\n".join([*lines, ""])
