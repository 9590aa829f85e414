"""``dasklab history``: chosen results per version of Dask, and which is slower than the one before."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.commands.options import results_option
from dasklab.path_types import OutputFolder, UserPath

FILE = "history.csv"  # beside the runs


@click.group(invoke_without_command=True)
@click.pass_context
@results_option
def history(context: click.Context, root: Path) -> None:
    """Keep chosen results per version of Dask, and tell regressions.

    \b
    dasklab history                      each benchmark from version to version, with intervals
    dasklab history add RUN...           keep these runs' valid samples
    dasklab history publish DIRECTORY    files that `asv publish` makes pages of
    """
    context.obj = root / FILE
    if context.invoked_subcommand is None:
        _tell(root / FILE)


@history.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=UserPath(exists=True))
@click.pass_obj
def add(file: Path, runs: tuple[Path, ...]) -> None:
    """Keep the valid samples of one or more RUNs, each by the version of Dask that it ran with."""
    from dasklab.results.history import history as kept
    from dasklab.results.storage import store

    for run in (run for path in runs for run in store.find(path)):
        click.echo(f"{run}: {kept.keep(file, run)} samples kept in {file}")


@history.command()
@click.argument("directory", type=OutputFolder())
@click.pass_obj
def publish(file: Path, directory: Path) -> None:
    """Write the files that `asv publish` makes pages of into DIRECTORY."""
    from dasklab.results.history import asv
    from dasklab.results.history import history as kept

    asv.write(kept.need(file), directory)
    click.echo(f"{directory}: now `asv publish` there, then `asv preview`")


def _tell(file: Path) -> None:
    """Print each step from a version to the next, what is slower first."""
    from dasklab.results.history import history as kept
    from dasklab.results.statistics.measures import interval
    from dasklab.terminal import print_table

    steps = kept.steps(kept.need(file))
    rank = ("regression", "improvement", "not shown")
    heads = ("benchmark", "cell", "from", "to", "median before", "median after", "after / before", "verdict")
    rows = [
        (
            step.benchmark,
            ",".join(f"{name}={level}" for name, level in step.params.items()),
            step.old,
            step.new,
            interval(step.before),
            interval(step.after),
            interval(step.change),
            step.verdict,
        )
        for step in sorted(steps, key=lambda step: rank.index(step.verdict))
    ]
    print_table(heads, rows)
    count = sum(step.verdict == "regression" for step in steps)
    click.echo(
        f"{count} regressions in {len(steps)} steps; chance alone makes any in at most one of 20 such tables"
    )
