"""``dasklab report``: one or more runs as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.path_types import OutputFolder, UserPath


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=UserPath(exists=True))
@click.option("-o", "--output", type=OutputFolder(), help="The folder to write. Default: report/ in the run.")
def report(runs: tuple[Path, ...], output: Path | None) -> None:
    """Write the report of one or more runs as one HTML page.

    The figures are also written as SVG and PNG, the text as Markdown. RUN may be a folder with several runs,
    such as results/: each of them is a section.
    """
    from dasklab.report import write
    from dasklab.results.storage import store

    directories = [run for path in runs for run in store.find(path)]
    click.echo(write(directories, output or OutputFolder().convert(runs[0] / "report", None, None)))
