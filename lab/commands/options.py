"""Command-line options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lab.machines.inventory import DEFAULT

INVENTORY = "-i", "--inventory"
SEEDS = 4  # simulations of a trial, unless another number is asked for


def chosen_inventory() -> Path:
    """The inventory named before the command (``dasklab -i FILE doctor``), else by the environment."""
    before: Path | None = click.get_current_context().find_root().params.get("inventory")
    return before or Path(os.environ.get("DASKLAB_INVENTORY", DEFAULT))


inventory_option = click.option(
    *INVENTORY,
    type=click.Path(path_type=Path),
    default=chosen_inventory,
    show_default="inventory/hosts.yml, or $DASKLAB_INVENTORY",
    help="The inventory: machines, sizes, NICs, addresses, endpoint.",
)
results_option = click.option(
    "--results",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: Path(os.environ.get("DASKLAB_RESULTS", "results")),
    show_default="./results, or $DASKLAB_RESULTS",
    help="Where runs are kept.",
)
