"""``dasklab graph``: the topology of the lab as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dasklab.console.options import inventory_option
from dasklab.errors import LabError
from dasklab.machines.inventory.drawing import FORMATS, topology_of
from dasklab.machines.inventory.variables import open_lab
from dasklab.terminal import echo


@click.command()
@inventory_option
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="svg", help="The form of the drawing."
)
def graph(inventory: Path, form: str) -> None:
    """Draw the lab's topology: hosts, NICs, bridges.

    \b
    dasklab graph > lab.svg
    """
    drawing = FORMATS[form](topology_of(open_lab(inventory)))
    if form == "svg" and sys.stdout.isatty():
        raise LabError("an SVG is for a file, not for a terminal", "dasklab graph > lab.svg")
    echo(drawing, nl=False)
