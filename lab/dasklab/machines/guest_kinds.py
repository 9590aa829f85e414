"""The two kinds of guest of Proxmox VE. The modules ``vms`` and ``containers`` implement ``GuestPlanner``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from dasklab.machines import containers, vms
from dasklab.machines.change import Change, Value
from dasklab.machines.topology import Guest, Lab
from dasklab.model.nic import GuestKind


class GuestPlanner(Protocol):
    """How to plan guests of one kind."""

    @property
    def API(self) -> str:  # noqa: N802 - a constant of the modules
        """The kind's name in the API's paths."""

    @property
    def TOOL(self) -> str:  # noqa: N802
        """The node's command for guests of this kind."""

    @property
    def DISKS(self) -> str:  # noqa: N802
        """The content type that the storage for disks must allow."""

    @property
    def IMAGES(self) -> str:  # noqa: N802
        """The content type that the storage for images must allow."""

    def make(self, guest: Guest, lab: Lab) -> Iterator[Change]:
        """Yield the calls that create a guest and start it."""

    def config(self, guest: Guest, lab: Lab) -> dict[str, Value]:
        """Return the settings of a guest that may change later."""

    def is_live(self, key: str, have: str | None, want: Value) -> bool:
        """Return whether this setting can change while the guest runs."""


KINDS: Mapping[GuestKind, GuestPlanner] = {"vm": vms, "container": containers}
BY_API: Mapping[str, GuestKind] = {kind.API: name for name, kind in KINDS.items()}


def contents(kinds: Collection[GuestKind], storage: str, image_storage: str) -> list[tuple[str, str]]:
    """Return the storages of these kinds of guest, each with a content type that it must allow."""
    modules = [module for kind, module in KINDS.items() if kind in kinds]
    return [pair for kind in modules for pair in ((storage, kind.DISKS), (image_storage, kind.IMAGES))]
