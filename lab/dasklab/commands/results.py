"""``dasklab results``: runs as tables. The tables are imported on use, because they need pandas."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from dasklab.console.options import results_option
from dasklab.console.path_types import OutputFile, RunPath, UserPath
from dasklab.errors import LabError
from dasklab.paths import display_path
from dasklab.terminal import echo

RUN = RunPath()
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@click.pass_context
@json_option
@results_option
def results(context: click.Context, root: Path, as_json: bool) -> None:
    """List, show, compare, export and pack runs; list records.

    \b
    dasklab results                   all runs, and all records of clusters
    dasklab results show RUN          its cells compared with the baseline
    dasklab results compare OLD NEW   the same cells of two runs
    dasklab results export RUN a.csv  the tidy table, a row per sample (.csv or
                                      .parquet)
    dasklab results pack RUN          one file that these commands, report and
                                      explain open
    """
    if context.invoked_subcommand is None:
        from dasklab.console import tables

        tables.list_runs(root, as_json)
    elif as_json:
        raise click.UsageError(f"--json belongs after `{context.invoked_subcommand}`")


@results.command()
@click.argument("run", type=RUN)
@json_option
def show(run: Path, as_json: bool) -> None:
    """Print each cell of RUN compared with the baseline, with intervals."""
    from dasklab.console import tables
    from dasklab.results.run import open_run

    opened = open_run(run)
    tables.print_run_as_json(opened) if as_json else tables.show_run(opened)


@results.command()
@click.argument("old", type=RUN)
@click.argument("new", type=RUN)
@click.option("--anyway", is_flag=True, help="Compare even if versions, accelerator or workload differ.")
@json_option
def compare(old: Path, new: Path, anyway: bool, as_json: bool) -> None:
    """Compare the cells that OLD and NEW have in common."""
    if old.resolve() == new.resolve():
        raise click.UsageError(f"{display_path(old)} is named twice; name two runs.")
    from dasklab.console import tables
    from dasklab.results.run import open_run

    tables.show_changes(open_run(old), open_run(new), anyway, as_json)


@results.command()
@click.argument("run", type=RUN)
@click.argument("output", type=OutputFile())
def export(run: Path, output: Path) -> None:
    """Write the tidy table of RUN, or of all runs below it, to OUTPUT: .csv or .parquet."""
    from dasklab.console import tables

    tables.export_table(run, output)


@results.command()
@click.argument("run", type=UserPath(exists=True, file_okay=False))
@click.option(
    "-o", "--output", type=OutputFile(in_folder=True), help="The file to write. Default: EXPERIMENT-TIME.zip."
)
@click.option("--hash-keys", is_flag=True, help="Of a record: as recording with --hash-keys writes it.")
@click.option("--no-code", is_flag=True, help="Of a record: as recording with --no-code writes it.")
def pack(run: Path, output: Path | None, hash_keys: bool, no_code: bool) -> None:
    """Write RUN, or what `dasklab record` recorded, to one file, to send or to keep.

    `dasklab report`, `dasklab explain` and `dasklab results` open the file like the folder. Captures are in
    the file; what is computed again from the rest, such as a report, is not. To give a record away,
    --hash-keys and --no-code leave out what it says of your code, as recording with these options does.
    """
    from dasklab.records.anonymize import anonymize
    from dasklab.results import pack as packing
    from dasklab.results.run import open_run

    opened = open_run(run)
    is_experiment = opened.is_experiment
    if not is_experiment and not opened.single.is_record:
        raise LabError(f"{run}: this is neither a run nor a record", "to list runs: dasklab results")
    name = (f"{run.parent.name}-{run.name}" if is_experiment else run.name) + packing.SUFFIX
    folder = Path.cwd() if output is None else output
    file = folder / name if folder.is_dir() else folder
    file = OutputFile().convert(file, None, None)
    if not hash_keys and not no_code:
        echo(packing.pack(run, file))
        return
    if is_experiment:
        raise LabError(f"{run}: a run of the lab; only records have --hash-keys and --no-code")
    with tempfile.TemporaryDirectory() as draft:
        anonymous = Path(draft, "record", run.name)
        anonymous.mkdir(parents=True)
        anonymize(run, anonymous, hashed=hash_keys, code=not no_code)
        echo(packing.pack(anonymous, file))
