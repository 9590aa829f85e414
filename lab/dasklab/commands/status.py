"""``dasklab status``: the state of the lab."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.commands.options import inventory_option
from dasklab.commands.playbooks import play
from dasklab.machines import presence
from dasklab.machines.variables import open_lab


@click.command()
@inventory_option
def status(inventory: Path) -> None:
    """Show the state of machines, links, Dask cluster and captures."""
    lab = open_lab(inventory)
    presence.require_endpoint(lab)
    play("status.yml", lab)
