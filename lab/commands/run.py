"""``dasklab run``: an experiment's trials one after the other, or only what they would be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from lab.commands.exits import HELP
from lab.commands.options import SEEDS, inventory_option, results_option
from lab.terminal import clock, print_table

if TYPE_CHECKING:
    from lab.model.experiment import Experiment
    from lab.model.trial import Setup, Trial


@click.command(epilog=HELP)
@click.argument("what", metavar="EXPERIMENT|FILE|RUN", required=False)
@click.option("--quick", is_flag=True, help="The short form, for a lab of emulated machines.")
@click.option("--only", metavar="CELL", help="Only this cell, with baseline and null trial: delay_ms=50")
@click.option("--seed", type=int, help="Shuffle the trials by this number instead of the file's.")
@click.option("--again", is_flag=True, help="Of a RUN, measure the invalid trials anew as well.")
@click.option("--dry-run", is_flag=True, help="Print the trials in their order and an estimate of the time.")
@click.option("--simulate", is_flag=True, help="In virtual time instead of in the lab; needs --from.")
@click.option(
    "--from",
    "source",
    metavar="RUN|TRIAL",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="What a simulation takes its costs from: measured before.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations that a simulated trial's runs are dealt to.",
)
@results_option
@inventory_option
def run(
    what: str | None,
    quick: bool,
    only: str | None,
    seed: int | None,
    again: bool,
    dry_run: bool,
    simulate: bool,
    source: Path | None,
    seeds: int,
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
    dasklab run results/delay_worker/20260101T120000Z --again   its invalid trials too
    dasklab run delay_worker --only delay_ms=50   one cell again; of a run: dasklab reproduce RUN CELL
    dasklab run delay_worker --simulate --from RUN    foretold, with the costs that RUN measured
    """
    directory: Path | None = None
    if what is None:
        _print_experiments()
    elif (Path(what) / "experiment.json").exists():
        if quick or only or seed is not None or simulate or source:
            raise click.UsageError(
                "a run goes on as it began: --quick, --only, --seed, --simulate and --from are for new ones"
            )
        directory = _go_on(Path(what), inventory, again=again, dry_run=dry_run)
    elif again:
        raise click.UsageError("--again is for a run that there is: dasklab run RUN --again")
    elif simulate != (source is not None):
        raise click.UsageError(
            "--simulate and --from go together: a simulation needs costs that were measured"
        )
    else:
        from lab.model import experiment

        name, content = experiment.load(what, quick)
        order: Order = {"quick": quick, "seed": seed, "only": only}
        if source:
            directory = _simulate(source, seeds, root, name, content, dry_run, order)
        else:
            directory = _measure(inventory, root, name, content, dry_run, order)
    if directory:
        from lab.commands.outcome import exit_status

        sys.exit(exit_status(directory))


class Order(TypedDict):
    """How trials are chosen and shuffled."""

    quick: bool
    seed: int | None
    only: str | None


def _go_on(directory: Path, inventory: Path, *, again: bool, dry_run: bool) -> Path | None:
    from lab.commands import progress, simulated
    from lab.machines.inventory import Inventory
    from lab.results import store
    from lab.running import driver
    from lab.running.setup import setup_of

    foretold = store.read_run(directory).setup.simulated
    setup = None if foretold else setup_of(Inventory(inventory))
    begun = driver.resume(directory, setup, again=again)
    if dry_run:
        _print_trials(begun.pending(), begun.experiment.run_s, begun.setup)
        return None
    if foretold:
        simulated.go_on(begun)
    else:
        progress.go_on(begun, inventory)
    return begun.directory


def _measure(
    inventory: Path, root: Path, name: str, content: Experiment, dry_run: bool, order: Order
) -> Path | None:
    from lab.commands import progress
    from lab.machines.inventory import Inventory
    from lab.running.setup import setup_of

    if dry_run:
        _dry_run(name, content, setup_of(Inventory(inventory)), order)
        return None
    return progress.start(inventory, root, name, content, **order)


def _simulate(
    source: Path, seeds: int, root: Path, name: str, content: Experiment, dry_run: bool, order: Order
) -> Path | None:
    from lab.commands.simulated import Calibrated

    calibrated = Calibrated.on(source, content, seeds)
    if dry_run:
        _dry_run(name, content, calibrated.setup, order)
        return None
    return calibrated.start(root, name, content, **order)


def _dry_run(name: str, content: Experiment, setup: Setup, order: Order) -> None:
    from lab.running.trials import plan

    trials = plan(name, content, setup, seed=order["seed"], only=order["only"])
    _print_trials(trials, content.run_s, setup)


def _print_trials(trials: list[Trial], run_s: float, setup: Setup) -> None:
    from lab.running.trials import estimate_s

    rows, total_s = [], 0.0
    for trial in trials:
        seconds = estimate_s(trial, run_s, setup.simulated is not None)
        total_s += seconds
        asked = "baseline" if trial.baseline else "null trial" if trial.null else trial.cell
        rows.append((trial.trial, f"{trial.warmups}+{trial.runs}", asked, f"about {clock(seconds)}"))
    print_table(("trial", "runs", "asked", "time"), rows)
    click.echo(f"{len(trials)} trials, about {clock(total_s)}")


def _print_experiments() -> None:
    from lab.model import experiment

    rows = [(name, experiment.load(name)[1].question) for name in experiment.names()]
    print_table(("experiment", "question"), rows)
