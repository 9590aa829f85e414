"""``dasklab status``: the state of the lab."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.lab.playbooks import answer, play
from dasklab.console.options import inventory_option
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.variables import open_lab


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@inventory_option
def status(as_json: bool, inventory: Path) -> None:
    """Show the state of machines, links, Dask cluster and captures."""
    lab = open_lab(inventory)
    presence.require_endpoint(lab)
    if not as_json:
        play("status.yml", lab)
        return
    from dasklab.console.json_documents import StatusRow, to_json

    click.echo(to_json([StatusRow.model_validate(row) for row in answer("status.yml", lab, "status_file")]))
