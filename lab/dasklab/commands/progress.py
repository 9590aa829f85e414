"""A run on the screen: how far it is, how long it will yet take, what became of each trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from dasklab.commands.exits import Exit
from dasklab.commands.locking import locked
from dasklab.commands.outcome import exit_status, explain_failures
from dasklab.commands.tables import show_run
from dasklab.errors import LabError
from dasklab.machines.inventory import Inventory
from dasklab.model.experiment import Experiment
from dasklab.model.files import Result
from dasklab.model.trial import Trial
from dasklab.results.storage import store
from dasklab.results.validity import completeness
from dasklab.running import driver, more_blocks, quiet
from dasklab.running.ansible_lab import AnsibleLab
from dasklab.running.more_blocks import Until
from dasklab.running.setup import setup_of
from dasklab.terminal import clock, console

COLOURS = {"ok": "green", "invalid": "yellow", "unsupported": "yellow", "failed": "red"}
INDENT = " " * 12


def start(
    inventory: Path,
    root: Path,
    name: str,
    content: Experiment,
    *,
    quick: bool,
    seed: int | None,
    only: str | None,
    until: Until | None = None,
    waits: bool = True,
) -> Path:
    """Begin a run of an experiment and see it through; return where it is."""
    lab = Inventory(inventory)
    with locked(lab, reset=True):
        setup = setup_of(lab)
        begun = driver.start(root, name, content, setup, quick=quick, seed=seed, only=only)
        _see_through(begun, AnsibleLab(inventory), until, _waiter(begun, inventory, waits))
    return begun.directory


def go_on(begun: driver.Ongoing, inventory: Path, until: Until | None = None, *, waits: bool = True) -> None:
    """See a run through that was interrupted."""
    with locked(Inventory(inventory), reset=True):
        _see_through(begun, AnsibleLab(inventory), until, _waiter(begun, inventory, waits))


def _see_through(
    begun: driver.Ongoing, lab: driver.Lab, until: Until | None, wait: Callable[[], None]
) -> None:
    """Run the pending trials and print the results, also if the lab could not be reset in the end.

    Raises:
        LabError: it could not be reset, though no trial failed.
    """
    trouble = None
    try:
        execute_until(begun, lab, until, wait)
    except LabError as error:
        trouble = error
    conclude(begun)
    if trouble and exit_status(begun.directory) != Exit.FAILED:
        raise trouble
    if trouble:
        click.secho(f"dasklab: {trouble.message}", fg="red", err=True)


def _waiter(begun: driver.Ongoing, inventory: Path, waits: bool) -> Callable[[], None]:
    """What waits for a quiet node before each trial, and says so."""
    if not waits:
        return lambda: None
    screen = console(sys.stderr)
    return quiet.Waiter(
        quiet.foreign_pct(inventory),
        begun.experiment.tolerances.foreign_pct,
        lambda line: screen.print(line, markup=False, highlight=False),
    )


def execute_until(
    begun: driver.Ongoing, lab: driver.Lab, until: Until | None, wait: Callable[[], None] = lambda: None
) -> None:
    """Run the pending trials, and with ``until`` as many blocks more as narrow intervals take."""
    execute(begun, lab, wait)
    while until and (longer := more_blocks.next_block(begun, until)):
        more_blocks.record(longer)
        console(sys.stderr).print(
            f"The intervals are wider than {until.share:.0%}: block {longer.experiment.blocks} of at most"
            f" {until.most}.",
            markup=False,
        )
        begun = longer
        execute(begun, lab, wait)


def execute(begun: driver.Ongoing, lab: driver.Lab, wait: Callable[[], None] = lambda: None) -> None:
    """Run the pending trials with progress on the screen; Ctrl-C ends with a line that says how to go on."""
    screen = console(sys.stderr)
    columns = [MofNCompleteColumn(), BarColumn(24), TextColumn("{task.description}"), Remaining()]
    screen.print(f"{begun.experiment.title}: {begun.experiment.question}", markup=False)
    screen.print(
        f"{len(begun.pending())} trials, about {clock(begun.remaining_s())}; results in {begun.directory}",
        markup=False,
        soft_wrap=True,
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        watch = Watch(begun, progress)
        try:
            driver.execute(begun, lab, watch, wait)
        except KeyboardInterrupt:
            clean = "" if begun.setup.simulated else "; the lab is clean"
            screen.print(
                f"stopped{clean}. To go on: dasklab run {quote(str(begun.directory))}",
                markup=False,
                soft_wrap=True,
            )
            sys.exit(Exit.INTERRUPTED)


class Remaining(ProgressColumn):
    """Counts down to the task's ``until``, a moment of the monotonic clock."""

    def render(self, task: Task) -> Text:
        """The time left, as a clock."""
        return Text(f"about {clock(max(0.0, task.fields['until'] - time.monotonic()))} left")


class Watch:
    """Called at each change of a trial's state; the reasons of the trial before are not told again."""

    def __init__(self, begun: driver.Ongoing, progress: Progress) -> None:
        self._run, self._progress = begun, progress
        self._reasons: list[str] = []
        self._seen: dict[str, str] = {}
        done = len(begun.trials) - len(begun.pending())
        self._task = progress.add_task("", total=len(begun.trials), completed=done, until=time.monotonic())

    def __call__(self, trial: Trial, state: str) -> None:
        """Show that the trial is running, or what became of it."""
        if state == "running":
            until = time.monotonic() + self._run.remaining_s()
            self._progress.update(self._task, description=trial.trial, until=until)
            return
        if self._seen.get(trial.trial):  # repeated: others had used the node
            self._progress.update(self._task, total=len(self._run.trials))
        else:
            self._progress.advance(self._task)
        self._seen[trial.trial] = state
        directory = self._run.directory / trial.trial
        result, captured = store.need(Result, directory), completeness.line(completeness.read(directory))
        name = f" {trial.trial} ({result.wall_s:.0f} s)"
        self._progress.console.print(Text.assemble((f"{state:11}", COLOURS[state]), name))
        reasons = [*result.reasons, *([captured] if captured else [])]
        for reason in ["as above"] if reasons and reasons == self._reasons else reasons:
            self._progress.console.print(Text(f"{INDENT}{reason}", "bold red" if reason == captured else ""))
        self._reasons = reasons


def conclude(begun: driver.Ongoing) -> None:
    """Print the cells of a run that has ended, how to get the page, and what to do about failed trials."""
    show_run(begun.directory)
    print(f"\nThe report: dasklab report {quote(str(begun.directory))}")
    explain_failures(begun.directory)
