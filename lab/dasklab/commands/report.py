"""``dasklab report``: one or more runs as pages."""

from __future__ import annotations

from pathlib import Path

import click

from dasklab.console.path_types import OutputFile, OutputFolder, RunPath, UserPath
from dasklab.errors import LabError
from dasklab.paths import display_path
from dasklab.terminal import echo, working


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RunPath())
@click.option(
    "-o",
    "--output",
    type=OutputFolder(),
    help="The folder to write. Default: report/ in the run, or NAME-report/ for a packed or read-only run.",
)
@click.option("--single-file", type=OutputFile(), help="Write the first page alone, to this file.")
@click.option(
    "--record",
    "recorded",
    metavar="RECORD",
    type=UserPath(exists=True, file_okay=False),
    help="Compare this record with the runs of its twin.",
)
def report(
    runs: tuple[Path, ...], output: Path | None, single_file: Path | None, recorded: Path | None
) -> None:
    """Write the report of one or more runs: a folder of pages that open from disk.

    The first page answers; each trial has a page with an interactive timeline and a trace to download. Two
    runs of one experiment are shown side by side. RUN may be a folder with several runs, such as results/:
    each of them is a section. It may also be a packed run.

    \b
    dasklab report RUN                            the folder report/ in the run
    dasklab report OLD NEW -o compared/           two runs side by side
    dasklab report RUN --single-file report.html  the first page alone, without
                                                  links to other files
    dasklab report RUN --record RECORD            compare a twin with its record
    """
    if output and single_file:
        raise click.UsageError("--single-file writes no folder; leave --output out")
    from dasklab.report import write, write_single_file
    from dasklab.results.run import find_runs, open_trial

    record = open_trial(recorded) if recorded else None
    if record and not record.is_record:
        raise LabError(f"--record {record}: not a record of a cluster")
    opened = [run for path in runs for run in find_runs(path)]
    with working() as progress:
        if single_file:
            first_page = write_single_file(opened, single_file, progress, record)
        else:
            folder = output or _beside(runs[0])
            first_page = write(opened, folder, progress, record)
    echo(display_path(first_page))


def _beside(run: Path) -> Path:
    """Return the folder for a run's report: in the run, or in the working folder.

    A packed run is in the cache, where nobody would look for the report. Another run may be read-only, or
    have a link where the report would be.
    """
    from dasklab.results import cached
    from dasklab.results.pack import is_unpacked

    report = run / "report"
    in_run = report if report.exists() or report.is_symlink() else run
    if not is_unpacked(run) and cached.is_writable(in_run):
        return report
    return OutputFolder().convert(Path(f"{run.parent.name}-{run.name}-report"), None, None)
