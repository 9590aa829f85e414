"""Machines or containers, where the inventory leaves it open: ``dasklab up --guests container``.

The choice is kept in the lab's state folder, where ``lab_guests`` of the inventory reads it.
"""

from __future__ import annotations

from pathlib import Path

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.machines.inventory import Inventory

FILE = "guests"


def choose_guests(inventory: Inventory, kind: str) -> None:
    """Keep the choice for this and all later commands.

    Raises:
        LabError: the inventory says itself what some of its hosts are.
    """
    hosts = inventory.hosts()
    folder = Path(inventory.value(hosts[0], "lab_state_dir"))
    file = folder / FILE
    before = file.read_text() if file.exists() else None
    atomic.write_text(file, kind)
    fixed = [host for host in hosts if inventory.optional(host, "lab_guests") != kind]
    if fixed:
        file.unlink() if before is None else atomic.write_text(file, before)
        told = inventory.optional(fixed[0], "lab_guests") or "nothing, so that it is a vm"
        raise LabError(
            f"{', '.join(fixed)}: the inventory says lab_guests: {told}, so --guests {kind} cannot choose",
            f"change lab_guests in {inventory.path.parent}, or have it as inventory/group_vars/all.yml has",
        )
