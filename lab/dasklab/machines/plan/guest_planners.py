"""How to plan each kind of guest. The modules ``vms`` and ``containers`` implement ``GuestPlanner``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from dasklab.machines.endpoint.change import Change, Value
from dasklab.machines.inventory.topology import Guest, Lab
from dasklab.machines.plan import containers, vms
from dasklab.model.settings.nic import GuestKind


class GuestPlanner(Protocol):
    """How to plan guests of one kind."""

    def make(self, guest: Guest, lab: Lab) -> Iterator[Change]:
        """Yield the calls that create a guest and start it."""

    def config(self, guest: Guest, lab: Lab) -> dict[str, Value]:
        """Return the settings of a guest that may change later."""

    def is_live(self, key: str, have: str | None, want: Value) -> bool:
        """Return whether this setting can change while the guest runs."""


PLANNERS: Mapping[GuestKind, GuestPlanner] = {"vm": vms, "container": containers}
