"""What a virtual network card is: its models, its rate cap's unit, and the text that Proxmox VE keeps of it.

The one owner of these facts outside the local endpoint (which must not share code with its client). Two
cards are compared parsed (``net_from_pve``), never as strings: order, case and number format may differ.
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

from dasklab.model.strict import Strict

# A model more is a word in each of these two lines, and a device of the endpoint.
NicModel = Literal["virtio", "e1000", "rtl8139", "veth"]
DRIVERS: Mapping[NicModel, frozenset[str]] = {
    "virtio": frozenset({"virtio_net"}),
    "e1000": frozenset({"e1000"}),
    "rtl8139": frozenset({"8139cp", "8139too"}),
    "veth": frozenset({"veth"}),
}
GuestKind = Literal["vm", "container"]
MODELS: Mapping[GuestKind, frozenset[NicModel]] = {
    "vm": frozenset(DRIVERS) - {"veth"},
    "container": frozenset({"veth"}),  # the card that emulates nothing
}
PLAIN: Mapping[GuestKind, NicModel] = {"vm": "virtio", "container": "veth"}  # where no model is asked for

LAB_SLOT = 1  # net1 is the link under test; net0 is management, net2 captures
BYTES_PER_MBIT = 125_000  # a rate cap is told in Mbit/s, of 10^6 bit
MIB = 1024 * 1024  # ... and by Proxmox VE in what it calls MB/s: 1 Gbit/s is 119.209, not 125
# How a node limits what a guest sends, where its kernel can; else it shapes, as it does towards a guest.
POLICED = "police"
BURST_MBIT = MIB / BYTES_PER_MBIT  # what a policer lets through at once

# Keys of netN; any other key is a model, whose value is the MAC.
OPTIONS = {"bridge", "firewall", "host-tunnel", "link_down", "macaddr", "model", "mtu", "queues", "rate"}
OPTIONS |= {"tag", "trunks"}
OF_CONTAINERS = {"gw", "gw6", "host-managed", "hwaddr", "ip", "ip6", "name", "type"}
NAMES = {"hwaddr": "macaddr", "type": "model"}  # what containers call these
DEFAULTS = {"firewall": "0", "link_down": "0"}

Mac = Annotated[str, Field(pattern=r"^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$")]
RateMbit = Annotated[float, Field(ge=0)]
BridgeName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")]


class Card(Strict):
    """What of a virtual network card an experiment may vary; a ``rate_mbit`` of 0 is no cap."""

    model: NicModel = "virtio"
    rate_mbit: RateMbit = 0

    def of_kind(self, kind: GuestKind) -> Self:
        """Return the card for a guest of this kind: of the same model if it has that, else the plain one."""
        return self if self.model in MODELS[kind] else self.model_copy(update={"model": PLAIN[kind]})


class Nic(Card):
    """One virtual network card as the inventory has it; the cap is one in both directions."""

    mac: Mac
    bridge: BridgeName
    address: IPv4Interface | None = None
    gateway: IPv4Address | None = None


AnyCard = TypeVar("AnyCard", bound=Card)


class NicOverride(Strict):
    """What a trial changes on one machine's lab link; ``None`` leaves the inventory's value."""

    model: NicModel | None = None
    rate_mbit: RateMbit | None = None

    def on(self, card: AnyCard) -> AnyCard:
        """Return ``card`` with what this override says, and as it is where this says nothing."""
        return card.model_copy(update=self.model_dump(exclude_none=True))


class GuestOverride(Strict):
    """What a trial changes of one machine: with its kind its NICs change, to that kind's plain ones."""

    kind: GuestKind


@dataclass(frozen=True)
class PveNic:
    """``netN`` parsed: equal where Proxmox VE would make the same card."""

    model: str
    mac: str
    bridge: str
    rate_bytes: int
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def rate_mbit(self) -> float:
        """The rate cap in Mbit/s, 0 is none."""
        return self.rate_bytes / BYTES_PER_MBIT

    def __str__(self) -> str:
        """The card as people read it: ``e1000 on vmbr1, 100 Mbit/s``."""
        cap = f", {self.rate_mbit:.6g} Mbit/s" if self.rate_bytes else ""
        return f"{self.model} on {self.bridge}{cap}"


def rate_to_pve(rate_mbit: float) -> str:
    """Mbit/s as Proxmox VE's ``rate``: the shortest text of which it makes the same whole bytes per second.

    It cuts ``rate * 2**20`` off to whole bytes, so the seventh digit is rounded up: that adds 0.1 byte.
    """
    whole = max(1, round(rate_mbit * BYTES_PER_MBIT))
    return f"{math.ceil(whole * 10**7 / MIB) / 10**7:.7f}".rstrip("0").removesuffix(".")


def rate_from_pve(rate: str | float) -> int:
    """Proxmox VE's ``rate`` in whole bytes per second, as it computes them."""
    return int(float(rate) * MIB)


def net_key(slot: int) -> str:
    """The name of a machine's ``slot``-th card in its configuration."""
    return f"net{slot}"


def nets(config: Iterable[str]) -> list[str]:
    """The keys of a machine's configuration that are cards, in their order."""
    found = [key for key in config if re.fullmatch(r"net\d+", key)]
    return sorted(found, key=lambda key: int(key[3:]))


def net_to_pve(nic: Nic) -> str:
    """Return the value of ``netN``; the MAC is always sent, else Proxmox VE would draw a new one."""
    rate = f",rate={rate_to_pve(nic.rate_mbit)}" if nic.rate_mbit else ""
    return f"{nic.model}={nic.mac},bridge={nic.bridge},firewall=0{rate}"


def net_from_pve(text: str) -> PveNic:
    """Parse the value of ``netN`` in any of the forms that Proxmox VE takes or tells."""
    known: dict[str, Any] = dict(DEFAULTS)
    for part in filter(None, text.split(",")):
        key, given, value = part.partition("=")
        if not given:
            known["model"] = key
        elif key in OPTIONS | OF_CONTAINERS:
            known[NAMES.get(key, key)] = value
        else:
            known |= {"model": key, "macaddr": value}
    return PveNic(
        model=known.pop("model", ""),
        mac=known.pop("macaddr", "").upper(),
        bridge=known.pop("bridge", ""),
        rate_bytes=rate_from_pve(known.pop("rate", 0)),
        others=known,
    )


def container_net_to_pve(slot: int, nic: Nic) -> str:
    """Return the value of a container's ``netN``, which holds its name inside and its address as well."""
    rate = f",rate={rate_to_pve(nic.rate_mbit)}" if nic.rate_mbit else ""
    address = f",{ipconfig_to_pve(nic)}" if nic.address else ""
    return f"name=eth{slot},bridge={nic.bridge},hwaddr={nic.mac},type=veth,firewall=0{rate}{address}"


def ipconfig_to_pve(nic: Nic) -> str:
    """Return the value of ``ipconfigN`` for a card with an address."""
    return f"ip={nic.address}{f',gw={nic.gateway}' if nic.gateway else ''}"
