"""``dasklab baseline``: measure the lab as it is."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.lab.target import open_running
from dasklab.console.options import inventory_option, new_results_option


@click.command()
@inventory_option
@new_results_option
@click.option("--again", is_flag=True, help="Measure it even if this lab has a baseline.")
def baseline(inventory: Path, root: Path, again: bool) -> None:
    """Measure the lab once as it is, and print the results."""
    from dasklab.console.trials.baseline_run import measure

    measure(open_running(inventory), root, again=again, details=True)
