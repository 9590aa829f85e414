"""The lab that a command is about to act on: checked, and named on the screen before anything changes."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.machines.inventory import Inventory
from dasklab.machines.presence import endpoint_name, require_machines
from dasklab.machines.variables import open_lab


def announce(lab: Inventory) -> None:
    """Print which inventory, endpoint and lab (the tag of its machines) are meant."""
    name = lab.optional(lab.hosts()[0], "lab_name")
    click.echo(f"Inventory {lab.path}, endpoint {endpoint_name(lab)}, lab {name}", err=True)


def open_target(path: Path) -> Inventory:
    """Open the lab that a command will change, and announce it."""
    lab = open_lab(path)
    announce(lab)
    return lab


def open_running(path: Path) -> Inventory:
    """Open the lab that a command will measure with, and announce it. Without machines there is no use."""
    lab = open_lab(path)
    require_machines(lab)
    announce(lab)
    return lab
