"""``dasklab results``: runs as tables. The tables are imported on use, because they need pandas."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.commands.options import results_option
from dasklab.path_types import OutputFile, UserPath

RUN = UserPath(exists=True)


@click.group(invoke_without_command=True)
@click.pass_context
@results_option
def results(context: click.Context, root: Path) -> None:
    """List, show, compare and export runs.

    \b
    dasklab results                      all runs
    dasklab results show RUN             its cells compared with the baseline
    dasklab results compare OLD NEW      the same cells of two runs
    dasklab results export RUN a.csv     the tidy table, a row per sample (.csv or .parquet)
    """
    if context.invoked_subcommand is None:
        from dasklab.commands import tables

        tables.list_runs(root)


@results.command()
@click.argument("run", type=RUN)
def show(run: Path) -> None:
    """Print each cell of RUN compared with the baseline, with intervals."""
    from dasklab.commands import tables

    tables.show_run(run)


@results.command()
@click.argument("old", type=RUN)
@click.argument("new", type=RUN)
@click.option("--anyway", is_flag=True, help="Compare even if versions, accelerator or workload differ.")
def compare(old: Path, new: Path, anyway: bool) -> None:
    """Compare the cells that OLD and NEW have in common."""
    from dasklab.commands import tables

    tables.show_changes(old, new, anyway)


@results.command()
@click.argument("run", type=RUN)
@click.argument("output", type=OutputFile())
def export(run: Path, output: Path) -> None:
    """Write the tidy table of RUN, or of all runs below it, to OUTPUT: .csv or .parquet."""
    from dasklab.commands import tables

    tables.export_table(run, output)
