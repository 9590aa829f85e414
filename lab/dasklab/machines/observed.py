"""What an endpoint has of what matters to one lab, and what of it is the lab's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasklab.machines.topology import Lab
from dasklab.model.nic import GuestKind


@dataclass(frozen=True)
class SeenGuest:
    """A guest as the endpoint tells it. ``config`` includes pending values; ``None``: it may not be read."""

    vmid: int
    node: str
    name: str
    status: str
    tags: frozenset[str]
    config: Mapping[str, str] | None
    pending: bool = False
    kind: GuestKind = "vm"
    uptime_s: int = 0

    @property
    def lock(self) -> str | None:
        """The operation that keeps others away from the VM."""
        return (self.config or {}).get("lock")

    @property
    def description(self) -> str:
        """Its description, which a node may end with a line break."""
        return (self.config or {}).get("description", "").strip()

    @property
    def is_template(self) -> bool:
        """Can others be linked clones of it? Then it goes after them."""
        return (self.config or {}).get("template") == "1"


@dataclass(frozen=True)
class SeenBridge:
    """A bridge of the node's configuration; ``active`` when the kernel has it too."""

    comment: str
    active: bool = True


@dataclass(frozen=True)
class SeenNode:
    """What one node has.

    ``pending`` holds, for each interface with changes that wait for a reload, these lines with ``+`` or
    ``-``. ``shared`` are storages that other nodes have too, ``zones`` those that are up, and ``address`` is
    where the other nodes reach it.
    """

    images: Mapping[str, str] = field(default_factory=dict)  # name -> the content that it is kept as
    bridges: Mapping[str, SeenBridge] = field(default_factory=dict)
    storages: Mapping[str, frozenset[str]] = field(default_factory=dict)  # name -> the content that it keeps
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    address: str = ""


@dataclass(frozen=True)
class SeenSdn:
    """The cluster's zones and vnets as configured; ``waiting`` are zones that an apply would change."""

    zones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vnets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Observed:
    """What the endpoint has. ``taken`` are wanted VMIDs that machines have which this token may not see."""

    version: tuple[int, int]
    guests: Mapping[int, SeenGuest]
    nodes: Mapping[str, SeenNode]
    sdn: SeenSdn = SeenSdn()
    taken: frozenset[int] = frozenset()


def fresh(lab: Lab) -> Observed:
    """What an endpoint has that nobody has used: what the inventory names but for the lab's own bridge."""
    names = {nic.bridge for guest in lab.guests for nic in guest.nics} - set(lab.bridges)
    kept = frozenset({"images", "import", "rootdir", "vztmpl"})
    nodes = {
        node: SeenNode(
            bridges={name: SeenBridge("") for name in sorted(names)},
            storages=dict.fromkeys((lab.storage, lab.image_storage), kept),
            address=node,
        )
        for node in lab.nodes
    }
    return Observed(version=(9, 0), guests={}, nodes=nodes)


def is_ours(guest: SeenGuest, lab: Lab) -> bool:
    """Does it carry the lab's mark? A guest has it in its description before it may have tags."""
    return lab.name in guest.tags or guest.description.startswith(mark(lab))


def mark(lab: Lab) -> str:
    """How the descriptions of the lab's guests begin."""
    return f"lab={lab.name} "


def bridge_mark(lab: str) -> str:
    """The comment of the own bridge of the lab of that name."""
    return f"bridge of lab {lab}"


def is_own_bridge(bridge: SeenBridge, lab: str) -> bool:
    """Did the lab of that name make this bridge?"""
    return bridge.comment == bridge_mark(lab)
