"""``dasklab report``: one or more runs as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.path_types import OutputFile, OutputFolder, UserPath


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=UserPath(exists=True))
@click.option("-o", "--output", type=OutputFolder(), help="The folder to write. Default: report/ in the run.")
@click.option("--single-file", type=OutputFile(), help="Write only the page, to this file, for e-mail.")
def report(runs: tuple[Path, ...], output: Path | None, single_file: Path | None) -> None:
    """Write the report of one or more runs as one HTML page.

    The figures are also written as SVG and PNG, the text as Markdown, and the page links to the files of each
    trial. RUN may be a folder with several runs, such as results/: each of them is a section.

    \b
    dasklab report RUN                             the folder report/ in the run
    dasklab report RUN --single-file report.html   one file without links to other files
    """
    if output and single_file:
        raise click.UsageError("--single-file writes no folder; leave --output out")
    from dasklab.report import write, write_single_file
    from dasklab.results.storage import store

    directories = [run for path in runs for run in store.find(path)]
    if single_file:
        click.echo(write_single_file(directories, single_file))
        return
    click.echo(write(directories, output or OutputFolder().convert(runs[0] / "report", None, None)))
