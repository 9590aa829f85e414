"""Open the lab that a command will act on, check it, and print its name before anything changes."""

from __future__ import annotations

from pathlib import Path

from dasklab.machines.endpoint.presence import endpoint_name, require_machines
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.variables import open_lab
from dasklab.terminal import echo


def announce(lab: Inventory) -> None:
    """Print the inventory, the endpoint and the lab's name, which is the tag of its machines."""
    name = lab.optional(lab.hosts()[0], "lab_name")
    echo(f"Inventory {lab.path}, endpoint {endpoint_name(lab)}, lab {name}", err=True)


def open_target(path: Path) -> Inventory:
    """Open and announce the lab that a command will change."""
    lab = open_lab(path)
    announce(lab)
    return lab


def open_running(path: Path) -> Inventory:
    """Open and announce the lab that a command will measure.

    Raises:
        LabError: none of its machines is running.
    """
    lab = open_lab(path)
    require_machines(lab)
    announce(lab)
    return lab
