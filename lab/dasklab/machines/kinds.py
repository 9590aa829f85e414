"""Proxmox VE's two kinds of guest, and what is asked of each; ``vms`` and ``containers`` answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from dasklab.machines import containers, vms
from dasklab.machines.change import Change, Value
from dasklab.machines.topology import Guest, Lab
from dasklab.model.nic import GuestKind


class Kind(Protocol):
    """One of Proxmox VE's kinds of guest."""

    @property
    def API(self) -> str:  # noqa: N802 - a constant of the modules
        """Its name in the API's paths."""

    @property
    def TOOL(self) -> str:  # noqa: N802
        """The node's own command for it."""

    @property
    def DISKS(self) -> str:  # noqa: N802
        """What content the storage of its disks has to keep."""

    @property
    def IMAGES(self) -> str:  # noqa: N802
        """What content the storage of its images has to keep."""

    def make(self, guest: Guest, lab: Lab) -> Iterator[Change]:
        """The calls that make a guest and start it."""

    def config(self, guest: Guest, lab: Lab) -> dict[str, Value]:
        """The guest's configuration as far as it may change in its life."""

    def is_live(self, key: str, have: str | None, want: Value) -> bool:
        """Whether a running guest takes this change without a stop."""


KINDS: Mapping[GuestKind, Kind] = {"vm": vms, "container": containers}
BY_API: Mapping[str, GuestKind] = {kind.API: name for name, kind in KINDS.items()}


def contents(kinds: Collection[GuestKind], storage: str, image_storage: str) -> list[tuple[str, str]]:
    """Storages, each with a content that it has to keep for guests of these kinds."""
    asked = [module for kind, module in KINDS.items() if kind in kinds]
    return [pair for kind in asked for pair in ((storage, kind.DISKS), (image_storage, kind.IMAGES))]
