"""Execute a run with progress on the terminal: trials done, phase, time left, and each trial's result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote
from statistics import median

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from dasklab.console.lab.locking import locked
from dasklab.console.tables import show_run
from dasklab.console.trials.exit_status import ExitStatus
from dasklab.console.trials.outcome import exit_status, explain_failures
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.settings.metric import METRICS
from dasklab.results.run import Run, Trial
from dasklab.results.samples import samples
from dasklab.results.validity import completeness
from dasklab.running.driver import driver, more_blocks, quiet_node
from dasklab.running.driver.driver import ActiveRun, TrialRunner
from dasklab.running.driver.life import State
from dasklab.running.driver.more_blocks import StopRule
from dasklab.running.plan import capabilities
from dasklab.running.plan.trials import plan
from dasklab.running.playbooks.ansible_lab import AnsibleLab, current_phase
from dasklab.terminal import cell, console, counted, duration, echo

COLOURS = {
    State.OK: "green",
    State.INVALID: "yellow",
    State.UNSUPPORTED: "yellow",
    State.FAILED: "red",
}
INDENT = " " * 12
WHOLE_MINUTES_S = 600  # more time left is rounded to minutes


def do_not_wait() -> None:
    """Start the next trial at once."""


def start(
    inventory: Path,
    root: Path,
    name: str,
    content: Experiment,
    *,
    quick: bool,
    seed: int | None,
    only: str | None,
    rule: StopRule | None = None,
    wait_for_quiet: bool = True,
    skip_unsupported: bool = False,
) -> Run:
    """Start a run of an experiment in the lab, execute it, and return it.

    Raises:
        LabError: the lab cannot run some cells, unless they are to be skipped and others remain.
    """
    lab = Inventory(inventory)
    setup = capabilities.setup_for(lab, name, content)
    trials = plan(name, content, setup, seed=seed, only=only)
    capabilities.require_supported(name, trials, skip_unsupported=skip_unsupported)
    with locked(lab, reset=True):
        run = driver.start(root, name, content, setup, quick=quick, seed=seed, only=only)
        _execute_and_report(run, AnsibleLab(inventory), rule, _waiter(run, inventory, wait_for_quiet))
    return run.opened_again()


def resume(
    run: ActiveRun, inventory: Path, rule: StopRule | None = None, *, wait_for_quiet: bool = True
) -> None:
    """Execute the pending trials of a run in the lab."""
    with locked(Inventory(inventory), reset=True):
        _execute_and_report(run, AnsibleLab(inventory), rule, _waiter(run, inventory, wait_for_quiet))


def _execute_and_report(
    run: ActiveRun, lab: TrialRunner, rule: StopRule | None, wait: Callable[[], None]
) -> None:
    """Execute the pending trials and print the results, even if the run stops early or the lab is not reset.

    Raises:
        LabError: the lab could not be reset, and no trial failed.
    """
    stop_error = None
    try:
        execute_until(run, lab, rule, wait)
    except LabError as error:
        stop_error = error
    conclude(run)
    if stop_error and exit_status(run.opened_again()) != ExitStatus.FAILED:
        raise stop_error
    if stop_error:
        echo(f"dasklab: {stop_error.message}", fg="red", err=True)


def _waiter(run: ActiveRun, inventory: Path, wait_for_quiet: bool) -> Callable[[], None]:
    """Return what to call before each trial: it waits for a quiet node, and prints that it does."""
    if not wait_for_quiet:
        return do_not_wait
    return quiet_node.Waiter(
        quiet_node.foreign_pct(inventory),
        run.experiment.tolerances.foreign_pct,
        partial(echo, err=True),  # it prints above the progress, which replaces sys.stderr
    )


def execute_until(
    run: ActiveRun, lab: TrialRunner, rule: StopRule | None, wait: Callable[[], None] = do_not_wait
) -> None:
    """Execute the pending trials. With a rule, add blocks until it says that there are enough."""
    execute(run, lab, wait)
    while rule and (longer := more_blocks.next_block(run, rule)):
        more_blocks.record(longer)
        echo(
            f"The intervals are wider than {rule.share:.0%}."
            f" Adding block {longer.experiment.blocks} of at most {rule.max_blocks}.",
            err=True,
        )
        run = longer
        execute(run, lab, wait)


def execute(run: ActiveRun, lab: TrialRunner, wait: Callable[[], None] = do_not_wait) -> None:
    """Execute the pending trials with progress on the terminal. Ctrl-C prints how to continue, and exits."""
    screen = console(sys.stderr)
    screen.print(cell(f"{run.experiment.title}: {run.experiment.question}"))
    trials = counted(len(run.pending()), "trial")
    echo(f"{trials}, about {duration(run.remaining_s())}. Results: {run.stored}", err=True)
    with Progress(*columns(), console=screen, transient=True) as progress:
        try:
            driver.execute(run, lab, TrialDisplay(run, progress), wait)
        except KeyboardInterrupt as stop:
            lab_state = "" if run.setup.simulated else " The lab has been reset."
            if isinstance(stop, driver.ResetStoppedError):
                lab_state = " The lab was not reset: links may be impaired until the next trial."
            again = f"dasklab run {quote(str(run.stored))}"
            screen.print(cell(f"Stopped.{lab_state} To continue: {again}"), soft_wrap=True)
            sys.exit(ExitStatus.INTERRUPTED)


def columns() -> tuple[ProgressColumn, ...]:
    """Return what the line of a running trial shows. Where it is too long, the phase is cut off."""
    left = TimeLeft(table_column=Column(no_wrap=True))
    return (
        MofNCompleteColumn(),
        BarColumn(12),
        TextColumn("{task.description}", markup=False),
        CurrentPhase(),
        left,
    )


class CurrentPhase(ProgressColumn):
    """Shows the phase of the trial in the task's field ``directory``."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        directory = task.fields["directory"]
        phase = (directory and current_phase(directory)) or ""
        text = cell(phase, "dim")
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class TimeLeft(ProgressColumn):
    """Counts down to the task's field ``until``, a time of the monotonic clock."""

    def render(self, task: Task) -> Text:
        left_s = task.fields["until"] - time.monotonic()
        if left_s > WHOLE_MINUTES_S:
            left_s = 60 * round(left_s / 60)
        return cell(f"about {duration(left_s)} left" if left_s >= 1 else "longer than planned")


class TrialDisplay:
    """Called at each change of a trial's state: moves the progress bar and prints each verdict.

    Reasons that equal those of the previous trial are printed as "as above".
    """

    def __init__(self, run: ActiveRun, progress: Progress) -> None:
        self._run, self._progress = run, progress
        self._last_reasons: list[str] = []
        self._finished: set[str] = set()
        completed = len(run.trials) - len(run.pending())
        until = time.monotonic() + run.remaining_s()
        self._task = progress.add_task(
            "", total=len(run.trials), completed=completed, until=until, directory=None
        )

    def __call__(self, trial: RequestedTrial, state: State) -> None:
        if state is State.RUNNING:
            until = time.monotonic() + self._run.remaining_s()
            directory = self._run.trial(trial.trial).folder
            self._progress.update(self._task, description=trial.trial, until=until, directory=directory)
            return
        if trial.trial not in self._finished:  # else it was repeated, because others had used the node
            self._finished.add(trial.trial)
            self._progress.advance(self._task)
        self._print_verdict(trial, state)

    def _print_verdict(self, trial: RequestedTrial, state: State) -> None:
        stored = self._run.trial(trial.trial)
        result, lost_frames = stored.result, completeness.line(completeness.read(stored))
        screen = self._progress.console
        measured = self._measured(stored) if state in (State.OK, State.INVALID) else ""
        line = f" {trial.trial} ({duration(result.wall_s)}){measured}"
        screen.print(cell(f"{state.value:11}", COLOURS[state]) + cell(line))
        warnings = [f"warning: {warning}" for warning in result.warnings]
        reasons = [*result.reasons, *warnings, *([lost_frames] if lost_frames else [])]
        for reason in ["as above"] if reasons and reasons == self._last_reasons else reasons:
            screen.print(cell(f"{INDENT}{reason}", "bold red" if reason == lost_frames else ""))
        self._last_reasons = reasons

    def _measured(self, trial: Trial) -> str:
        """Return the median of the main metric in words; "" if it was not measured."""
        metric = METRICS[next(iter(self._run.experiment.metrics))]
        rows = [row for row in samples(trial) if row["metric"] == metric.name and not row.get("warmup")]
        values = [row["value"] for row in rows if row["value"] is not None]
        return f"  {metric.title} {metric.quantity(median(values))}" if values else ""


def conclude(run: ActiveRun) -> None:
    """Print a finished run's tables, the command for its report, and what to do about failed trials."""
    stored = run.opened_again()
    show_run(stored)
    echo(f"\nTo write the report: dasklab report {quote(str(run.stored))}")
    explain_failures(stored)
