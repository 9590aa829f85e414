"""What an endpoint has that matters to one lab, and which of it belongs to the lab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dasklab.machines.endpoint import lab_note
from dasklab.machines.inventory.topology import Lab
from dasklab.model.settings.nic import GuestKind


@dataclass(frozen=True)
class ObservedGuest:
    """A guest as the endpoint reports it.

    ``config`` includes changes that are pending until the next start; it is None if the token may not read
    it.
    """

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
        """The operation that has locked the guest."""
        return (self.config or {}).get("lock")

    @property
    def description(self) -> str:
        """The description without the line break that a node may append, and without the note of a user."""
        return lab_note.without((self.config or {}).get("description", ""))

    @property
    def is_template(self) -> bool:
        """Whether other guests can be linked clones of it. It must be removed after them."""
        return (self.config or {}).get("template") == "1"


@dataclass(frozen=True)
class ObservedBridge:
    """A configured bridge. It is ``active`` if the kernel has it, too."""

    comment: str
    active: bool = True


@dataclass(frozen=True)
class ObservedNode:
    """What one node has.

    Args:
        images: name of an image -> the content type it is stored as.
        bridges: configured bridges by name.
        storages: name of a storage -> the content types it allows.
        pending: interface -> its changed lines (with ``+`` or ``-``) that wait for a reload.
        shared: storages that other nodes have, too.
        zones: SDN zones that are up.
        address: where the other nodes reach this one.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    bridges: Mapping[str, ObservedBridge] = field(default_factory=dict)
    storages: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    address: str = ""


@dataclass(frozen=True)
class ObservedSdn:
    """The cluster's configured SDN zones and vnets; ``waiting`` are zones that an apply would change."""

    zones: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vnets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Observed:
    """What the endpoint has.

    ``hidden_vmids`` are requested VMIDs of guests that exist but that this token may not see.
    """

    version: tuple[int, int]
    guests: Mapping[int, ObservedGuest]
    nodes: Mapping[str, ObservedNode]
    sdn: ObservedSdn = ObservedSdn()
    hidden_vmids: frozenset[int] = frozenset()


def fresh(lab: Lab) -> Observed:
    """Return what a new endpoint would have: storages, and the inventory's bridges except the lab's own."""
    names = {nic.bridge for guest in lab.guests for nic in guest.nics} - set(lab.bridges)
    contents = frozenset({"images", "import", "rootdir", "vztmpl"})
    nodes = {
        node: ObservedNode(
            bridges={name: ObservedBridge("") for name in sorted(names)},
            storages=dict.fromkeys((lab.storage, lab.image_storage), contents),
            address=node,
        )
        for node in lab.nodes
    }
    return Observed(version=(9, 0), guests={}, nodes=nodes)


def is_ours(guest: ObservedGuest, lab: Lab) -> bool:
    """Return whether a guest carries the lab's mark. It has the description before it may have tags."""
    return lab.name in guest.tags or guest.description.startswith(ownership_mark(lab))


def ownership_mark(lab: Lab) -> str:
    """Return how the descriptions of the lab's guests begin."""
    return f"lab={lab.name} "


def bridge_mark(lab: str) -> str:
    """Return the comment of a bridge that the lab named ``lab`` created."""
    return f"bridge of lab {lab}"


def is_own_bridge(bridge: ObservedBridge, lab: str) -> bool:
    """Return whether the lab named ``lab`` created this bridge."""
    return bridge.comment == bridge_mark(lab)
