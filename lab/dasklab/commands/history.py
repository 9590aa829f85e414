"""``dasklab history``: selected results per version of Dask, and the regressions between versions."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.options import results_option
from dasklab.console.path_types import OutputFolder, UserPath
from dasklab.terminal import echo

HISTORY_FILE = "history.csv"


@click.group(invoke_without_command=True)
@click.pass_context
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@results_option
def history(context: click.Context, root: Path, as_json: bool) -> None:
    """Keep selected results per version of Dask, and report regressions.

    \b
    dasklab history                    each benchmark from version to version
    dasklab history add RUN...         add the valid samples of these runs
    dasklab history publish DIRECTORY  write files that `asv publish` turns into
                                       pages
    """
    context.obj = root / HISTORY_FILE
    if context.invoked_subcommand is None:
        _print_steps(root / HISTORY_FILE, as_json)
    elif as_json:
        raise click.UsageError(f"`{context.invoked_subcommand}` prints no JSON")


@history.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=UserPath(exists=True))
@click.pass_obj
def add(file: Path, runs: tuple[Path, ...]) -> None:
    """Add the valid samples of RUNs to the history, with the version of Dask that they ran with."""
    from dasklab.results.history import history as table
    from dasklab.results.run import find_runs

    for run in (run for path in runs for run in find_runs(path)):
        echo(f"{run}: {table.add(file, run)} samples added to {file}")


@history.command()
@click.argument("directory", type=OutputFolder())
@click.pass_obj
def publish(file: Path, directory: Path) -> None:
    """Write the files that `asv publish` turns into pages into DIRECTORY."""
    from dasklab.results.history import asv
    from dasklab.results.history import history as table

    asv.write(table.require(file), directory)
    echo(f"{directory}: now run `asv publish` there, then `asv preview`")


def _print_steps(file: Path, as_json: bool) -> None:
    """Print each step from a version to the next, regressions first."""
    from dasklab.model.forms.json_output import to_json
    from dasklab.results.history import history as table
    from dasklab.results.statistics.interval import format_interval
    from dasklab.terminal import print_table

    rank = ("regression", "improvement", "change", "not shown")
    steps = sorted(table.steps(table.require(file)), key=lambda step: rank.index(step.verdict))
    if as_json:
        echo(to_json(steps, list[table.VersionStep]))
        return
    heads = ("benchmark", "cell", "from", "to", "median before", "median after", "after / before", "verdict")
    rows = [
        (
            step.benchmark,
            ",".join(f"{name}={level}" for name, level in step.params.items()),
            step.old,
            step.new,
            format_interval(step.before),
            format_interval(step.after),
            format_interval(step.change),
            step.verdict,
        )
        for step in steps
    ]
    print_table(heads, rows)
    count = sum(step.verdict == "regression" for step in steps)
    echo(
        f"{count} regressions in {len(steps)} steps; chance alone shows one in at most one of 20 such tables"
    )
