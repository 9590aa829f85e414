"""Virtual NICs: their models, the unit of their rate cap, and the text that Proxmox VE stores for each.

The one owner of these facts outside minipve, which must not share code with its client. Two NICs are compared
after parsing (``net_from_pve``), never as texts: order, case and number format may differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field
from typing_extensions import Self

from dasklab.model.forms.strict import Strict

# To add a model, add it to the next three; the endpoint must offer the device.
NicModel = Literal["virtio", "e1000", "rtl8139", "veth"]
DRIVERS: Mapping[NicModel, frozenset[str]] = {
    "virtio": frozenset({"virtio_net"}),
    "e1000": frozenset({"e1000"}),
    "rtl8139": frozenset({"8139cp", "8139too"}),
    "veth": frozenset({"veth"}),
}
TITLES: Mapping[NicModel, str] = {"virtio": "VirtIO", "e1000": "E1000", "rtl8139": "RTL8139", "veth": "veth"}
GuestKind = Literal["vm", "container"]
MODELS: Mapping[GuestKind, frozenset[NicModel]] = {
    "vm": frozenset(DRIVERS) - {"veth"},
    "container": frozenset({"veth"}),  # emulates nothing
}
DEFAULT_MODEL: Mapping[GuestKind, NicModel] = {"vm": "virtio", "container": "veth"}

LAB_SLOT = 1  # net1 is the link under test; net0 is management, net2 captures
BYTES_PER_MBIT = 125_000  # a rate cap is in Mbit/s of 10^6 bit for the lab ...
MIB = 1024 * 1024  # ... and in MiB/s for Proxmox VE, which writes MB/s: 1 Gbit/s is 119.209, not 125
# A node whose kernel has policers limits with one what a guest sends; all else is shaped.
POLICED = "police"
BURST_MBIT = MIB / BYTES_PER_MBIT  # what a policer passes at once

# The keys of netN. Any other key is a model, and its value is the MAC.
OPTIONS = {"bridge", "firewall", "host-tunnel", "link_down", "macaddr", "model", "mtu", "queues", "rate"}
OPTIONS |= {"tag", "trunks"}
CONTAINER_OPTIONS = {"gw", "gw6", "host-managed", "hwaddr", "ip", "ip6", "name", "type"}
CONTAINER_NAMES = {"hwaddr": "macaddr", "type": "model"}  # the containers' names of two of the options
DEFAULTS = {"firewall": "0", "link_down": "0"}

Mac = Annotated[str, Field(pattern=r"^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$")]
RateMbit = Annotated[float, Field(ge=0)]
BridgeName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")]


class NicSettings(Strict):
    """What an experiment may vary of a NIC; a ``rate_mbit`` of 0 is no cap."""

    model: NicModel = "virtio"
    rate_mbit: RateMbit = 0

    def for_kind(self, kind: GuestKind) -> Self:
        """Return the NIC for a guest of this kind: the same model if the kind has it, else its default."""
        if self.model in MODELS[kind]:
            return self
        return self.model_copy(update={"model": DEFAULT_MODEL[kind]})


class Nic(NicSettings):
    """One virtual NIC of the inventory. The cap applies to both directions, to each by itself."""

    mac: Mac
    bridge: BridgeName
    address: IPv4Interface | None = None
    gateway: IPv4Address | None = None


AnyNic = TypeVar("AnyNic", bound=NicSettings)


class NicOverride(Strict):
    """What a trial changes on one host's lab link; ``None`` leaves the inventory's value."""

    model: NicModel | None = None
    rate_mbit: RateMbit | None = None

    def apply_to(self, nic: AnyNic) -> AnyNic:
        """Return the NIC with the values that this override has."""
        return nic.model_copy(update=self.model_dump(exclude_none=True))


class GuestOverride(Strict):
    """What a trial changes on one guest. With its kind, its NICs change to the default model of that kind."""

    kind: GuestKind


@dataclass(frozen=True)
class PveNic:
    """``netN`` parsed. Two are equal if Proxmox VE would make the same NIC of them."""

    model: str
    mac: str
    bridge: str
    rate_bytes: int
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def rate_mbit(self) -> float:
        """The rate cap in Mbit/s; 0 is none."""
        return self.rate_bytes / BYTES_PER_MBIT

    def __str__(self) -> str:
        """Return the NIC for people: ``e1000 on vmbr1, 100 Mbit/s``."""
        cap = f", {self.rate_mbit:.6g} Mbit/s" if self.rate_bytes else ""
        return f"{self.model} on {self.bridge}{cap}"


def rate_to_pve(rate_mbit: float) -> str:
    """Return a rate as Proxmox VE's ``rate``: the shortest text that gives the same bytes per second.

    Proxmox VE truncates ``rate * 2**20`` to whole bytes, so the seventh digit is rounded up; that adds at
    most 0.1 byte.
    """
    whole = max(1, round(rate_mbit * BYTES_PER_MBIT))
    return f"{math.ceil(whole * 10**7 / MIB) / 10**7:.7f}".rstrip("0").removesuffix(".")


def rate_from_pve(rate: str | float) -> int:
    """Return Proxmox VE's ``rate`` in whole bytes per second, computed as it does."""
    return int(float(rate) * MIB)


def net_key(slot: int) -> str:
    """Return the key of a guest's NIC in its configuration."""
    return f"net{slot}"


def net_keys(config: Iterable[str]) -> list[str]:
    """Return the keys of a guest's configuration that are NICs, by number."""
    keys = [key for key in config if re.fullmatch(r"net\d+", key)]
    return sorted(keys, key=lambda key: int(key[3:]))


def net_to_pve(nic: Nic) -> str:
    """Return the value of ``netN``. The MAC is always sent; without it Proxmox VE would draw a new one."""
    rate = f",rate={rate_to_pve(nic.rate_mbit)}" if nic.rate_mbit else ""
    return f"{nic.model}={nic.mac},bridge={nic.bridge},firewall=0{rate}"


def net_from_pve(text: str) -> PveNic:
    """Parse the value of ``netN`` in any of the forms that Proxmox VE accepts or reports."""
    options: dict[str, Any] = dict(DEFAULTS)
    for part in filter(None, text.split(",")):
        key, separator, value = part.partition("=")
        if not separator:
            options["model"] = key
        elif key in OPTIONS | CONTAINER_OPTIONS:
            options[CONTAINER_NAMES.get(key, key)] = value
        else:
            options |= {"model": key, "macaddr": value}
    return PveNic(
        model=options.pop("model", ""),
        mac=options.pop("macaddr", "").upper(),
        bridge=options.pop("bridge", ""),
        rate_bytes=rate_from_pve(options.pop("rate", 0)),
        others=options,
    )


def container_net_to_pve(slot: int, nic: Nic) -> str:
    """Return the value of a container's ``netN``, which also has its name inside and its address."""
    rate = f",rate={rate_to_pve(nic.rate_mbit)}" if nic.rate_mbit else ""
    address = f",{ipconfig_to_pve(nic)}" if nic.address else ""
    return f"name=eth{slot},bridge={nic.bridge},hwaddr={nic.mac},type=veth,firewall=0{rate}{address}"


def ipconfig_to_pve(nic: Nic) -> str:
    """Return the value of ``ipconfigN`` for a NIC with an address."""
    return f"ip={nic.address}{f',gw={nic.gateway}' if nic.gateway else ''}"
