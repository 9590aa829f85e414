"""What follows from a machine's place in the inventory, for group_vars/virtual_machines.yml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.machines.place import machine


class FilterModule:
    """Ansible's way to the function above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"lab_machine": machine}
