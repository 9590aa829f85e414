"""``dasklab run``, ``results`` and ``report``: the commands of an experiment, thin over driver and report."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from lab.commands.options import inventory_option, results_option
from lab.errors import LabError
from lab.machines.inventory import Inventory
from lab.model import experiment
from lab.model.files import Result
from lab.model.trial import Trial
from lab.results import compare as comparison
from lab.results import completeness, load
from lab.results import store as stored
from lab.results.measures import answer, interval, number
from lab.running import driver
from lab.running.ansible_lab import AnsibleLab, alone
from lab.running.setup import setup_of
from lab.running.trials import estimate_s, plan

COLOURS = {"ok": "green", "invalid": "yellow", "unsupported": "yellow", "failed": "red"}


@click.command()
@click.argument("what", metavar="EXPERIMENT|FILE|RUN", required=False)
@click.option("--quick", is_flag=True, help="The short form, for a lab of emulated machines.")
@click.option("--only", metavar="CELL", help="Only this cell, with baseline and null trial: delay_ms=50")
@click.option("--seed", type=int, help="Shuffle the trials by this number instead of the file's.")
@click.option("--dry-run", is_flag=True, help="Print the trials in their order and an estimate of the time.")
@results_option
@inventory_option
def run(
    what: str | None,
    quick: bool,
    only: str | None,
    seed: int | None,
    dry_run: bool,
    root: Path,
    inventory: Path,
) -> None:
    """Run an experiment, or go on with a run that was interrupted.

    EXPERIMENT is the name of one that comes with the lab (none given: lists them), FILE one of your own, RUN
    the directory of a run: it goes on where it was, finished trials are kept and failed ones tried again.

    \b
    dasklab run                                   what there is
    dasklab run delay_worker --quick --dry-run    what it would do, and how long
    dasklab run delay_worker --quick
    dasklab run results/delay_worker/20260101T120000Z
    dasklab run delay_worker --only delay_ms=50   one cell again
    """
    if what is None:
        _list_experiments()
        return
    if (Path(what) / "experiment.json").exists():
        with alone(inventory):
            begun = driver.resume(Path(what), setup_of(Inventory(inventory)))
            execute(begun, AnsibleLab(inventory))
        conclude(begun)
        return
    name, content = experiment.load(what, quick)
    if dry_run:
        setup = setup_of(Inventory(inventory))
        _print_plan(content, plan(name, content, setup, seed=seed, only=only))
        return
    with alone(inventory):
        setup = setup_of(Inventory(inventory))
        begun = driver.start(root, name, content, setup, quick=quick, seed=seed, only=only)
        execute(begun, AnsibleLab(inventory))
    conclude(begun)


class Remaining(ProgressColumn):
    """Counts down to the task's ``until``, a moment of the monotonic clock."""

    def render(self, task: Task) -> Text:
        """The time left, as a clock."""
        return Text(f"{_clock(max(0.0, task.fields['until'] - time.monotonic()))} left")


def execute(begun: driver.Run, lab: driver.Lab) -> None:
    """Run the pending trials with progress on the screen; Ctrl-C ends with a line that says how to go on."""
    console = Console(stderr=True)
    columns = [MofNCompleteColumn(), BarColumn(24), TextColumn("{task.description}"), Remaining()]
    console.print(f"[bold]{begun.experiment.title}[/]: {begun.experiment.question}")
    console.print(
        f"{len(begun.pending())} trials, {_clock(begun.remaining_s())}; results in {begun.directory}"
    )
    with Progress(*columns, console=console, transient=True) as progress:
        done = len(begun.trials) - len(begun.pending())
        task = progress.add_task("", total=len(begun.trials), completed=done, until=time.monotonic())

        def told(trial: Trial, state: str) -> None:
            if state == "running":
                until = time.monotonic() + begun.remaining_s()
                progress.update(task, description=trial.trial, until=until)
                return
            progress.advance(task)
            directory = begun.directory / trial.trial
            result, lost = stored.need(Result, directory), completeness.line(completeness.read(directory))
            progress.console.print(
                f"[{COLOURS[state]}]{state:11}[/] {trial.trial} ({result.wall_s:.0f} s)"
                + "".join(f"\n{'':12}{reason}" for reason in result.reasons)
                + (f"\n{'':12}[bold red]{lost}[/]" if lost else ""),
                highlight=False,
            )

        try:
            driver.execute(begun, lab, told)
        except KeyboardInterrupt:
            console.print(f"stopped; the lab is clean. To go on: dasklab run {begun.directory}")
            sys.exit(130)


def conclude(begun: driver.Run) -> None:
    """Print the cells of a run that has ended, and how to get the page."""
    show_run(begun.directory)
    print(f"\nThe report: dasklab report {begun.directory}")


@click.group(invoke_without_command=True)
@click.pass_context
@results_option
def results(context: click.Context, root: Path) -> None:
    """List, show and compare runs.

    \b
    dasklab results                      all runs
    dasklab results show RUN             its cells against the baseline
    dasklab results compare OLD NEW      the same cells of two runs
    dasklab results export RUN a.csv     the tidy table, a row per sample (.csv or .parquet)
    """
    if context.invoked_subcommand is None:
        _list_runs(root)


@results.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path, exists=True))
def show(path: Path) -> None:
    """Print each cell of RUN against the baseline, with intervals."""
    show_run(path)


@results.command()
@click.argument("old", type=click.Path(path_type=Path, exists=True))
@click.argument("new", type=click.Path(path_type=Path, exists=True))
@click.option("--anyway", is_flag=True, help="Even if versions, accelerator or workload differ.")
def compare(old: Path, new: Path, anyway: bool) -> None:
    """Compare the cells that OLD and NEW have in common."""
    table = Table("metric", "cell", "old", "new", "new / old", box=None)
    for change in comparison.compare(old, new, anyway):
        row = (change.metric, change.cell, number(change.old), number(change.new), interval(change.ratio))
        table.add_row(*row)
    Console().print(table)


@results.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path, exists=True))
@click.argument("output", type=click.Path(path_type=Path))
def export(path: Path, output: Path) -> None:
    """Write the tidy table of RUN (or of all runs below it) to OUTPUT: .csv or .parquet."""
    frame = load(path)
    if output.suffix == ".csv":
        frame.to_csv(output, index=False)
    elif output.suffix == ".parquet":
        frame.to_parquet(output, index=False)
    else:
        raise LabError(f"{output}: the table is written as .csv or .parquet")


@click.command()
@click.argument(
    "runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A directory; default: report/ in the run."
)
def report(runs: tuple[Path, ...], output: Path | None) -> None:
    """Write the report of one or more runs: one HTML page, its figures as SVG and PNG, and Markdown.

    RUN may also be a directory above several runs, as results/: all of them, one section each.
    """
    from lab.report import write

    directories = [run for path in runs for run in stored.find(path)]
    print(write(directories, output or (runs[0] / "report")))


def show_run(path: Path) -> None:
    """Print the cells of a run, metric by metric."""
    frame = load(path)
    for metric in stored.read_run(path).experiment["metrics"]:
        found = answer(frame, metric, frame.attrs["factors"])
        if found is None:
            print(f"{metric}: no valid baseline")
            continue
        table = Table("cell", "n", "median", "x baseline", "", box=None, title=metric, title_justify="left")
        for cell in found.cells:
            ratio = "" if cell is found.cells[0] else interval(cell.ratio)
            verdict = "" if not ratio else "shown" if cell.shown else "not shown"
            table.add_row(cell.name, str(cell.n), interval(cell.median), ratio, verdict)
        Console().print(table)


def _list_experiments() -> None:
    table = Table("experiment", "question", box=None)
    for name in experiment.names():
        table.add_row(name, experiment.load(name)[1].question)
    Console().print(table)


def _list_runs(root: Path) -> None:
    table = Table("run", "form", "trials", "ok", "accelerator", box=None)
    for run_directory in stored.find(root):
        document = stored.read_run(run_directory)
        done = stored.finished(run_directory)
        valid = sum(stored.need(Result, directory).status == "ok" for directory in done)
        form = "quick" if document.quick else "full"
        accel = comparison.accelerator(run_directory) or "?"
        table.add_row(str(run_directory), form, f"{len(done)}/{len(document.order)}", str(valid), accel)
    Console().print(table)


def _print_plan(content: experiment.Experiment, trials: list[Trial]) -> None:
    table = Table("trial", "runs", "asked", "about", box=None)
    total = 0.0
    for trial in trials:
        seconds = estimate_s(trial, content.run_s)
        total += seconds
        asked = "baseline" if trial.baseline else "null trial" if trial.null else trial.cell
        table.add_row(trial.trial, f"{trial.warmups}+{trial.runs}", asked, _clock(seconds))
    Console().print(table)
    print(f"{len(trials)} trials, {_clock(total)}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"about {hours}:{minutes:02}:{rest:02}" if hours else f"about {minutes}:{rest:02}"
