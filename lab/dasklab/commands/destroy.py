"""``dasklab destroy``: remove the lab."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dasklab.console.lab.locking import locked
from dasklab.console.lab.playbooks import play
from dasklab.console.lab.target import open_target
from dasklab.console.options import inventory_option


@click.command()
@inventory_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def destroy(inventory: Path, yes: bool) -> None:
    """Remove everything that carries this lab's tag.

    That is machines, template, bridge and images. A local endpoint is stopped as well. Results stay.
    """
    lab = open_target(inventory)
    name = lab.optional(lab.hosts()[0], "lab_name")
    if not yes and sys.stdin.isatty():
        click.confirm(f"Remove the machines of lab {name!r}? Results stay", abort=True)
    with locked(lab, reset=False):
        play("destroy.yml", lab)
    click.echo(f"Removed lab {name!r}. Results stay.")
