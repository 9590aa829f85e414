"""Remember the user's choice of virtual machines or containers: ``dasklab up --guests container``.

The choice is a file in the lab's state folder. The default inventory reads ``lab_guests`` from it.
"""

from __future__ import annotations

from pathlib import Path

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory

FILE = "guests"


def choose_guests(inventory: Inventory, kind: str) -> None:
    """Store the choice for this and all later commands.

    Raises:
        LabError: the inventory sets the kind of some hosts itself.
    """
    hosts = inventory.hosts()
    file = Path(inventory.value(hosts[0], "lab_state_dir")) / FILE
    before = file.read_text(encoding="utf-8") if file.exists() else None
    atomic.write_text(file, kind)
    fixed = [host for host in hosts if inventory.optional(host, "lab_guests") != kind]
    if fixed:
        file.unlink() if before is None else atomic.write_text(file, before)
        value = inventory.optional(fixed[0], "lab_guests") or "vm, by default"
        raise LabError(
            f"--guests {kind} has no effect on {', '.join(fixed)}: the inventory sets lab_guests to {value}",
            f"change lab_guests in {inventory.path.parent}, or set it as inventory/group_vars/all.yml does",
        )
