"""``dasklab run``: an experiment's trials one after the other, or only what they would be."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from dasklab.commands.exits import HELP
from dasklab.commands.options import SEEDS, inventory_option, new_results_option
from dasklab.path_types import UserPath
from dasklab.terminal import clock, print_table

if TYPE_CHECKING:
    from dasklab.model.experiment import Experiment
    from dasklab.model.trial import Setup, Trial
    from dasklab.running.more_blocks import Until


def _share(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """``10%`` or ``10`` -> 0.1."""
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < (share := float(text.removesuffix("%")) / 100) < 1:
            return share
    raise click.BadParameter(f"{text!r} is no share like 10%", context, parameter)


@click.command(epilog=HELP)
@click.argument("what", metavar="EXPERIMENT|FILE|RUN", required=False)
@click.option("--quick", is_flag=True, help="The short form, for a lab of emulated machines.")
@click.option("--only", metavar="CELL", help="Only this cell, with baseline and null trial: delay_ms=50")
@click.option("--seed", type=int, help="Shuffle the trials by this number instead of the file's.")
@click.option("--again", is_flag=True, help="Of a RUN, measure the invalid trials anew as well.")
@click.option("--blocks", type=click.IntRange(1, 100), help="Measure every cell in so many blocks.")
@click.option(
    "--until",
    metavar="PERCENT",
    callback=_share,
    help="Add blocks until the main metric's intervals are within 10%, say; at most 12, or --blocks.",
)
@click.option("--no-wait", is_flag=True, help="Measure on a busy node instead of waiting until it is quiet.")
@click.option("--dry-run", is_flag=True, help="Print the trials in their order and an estimate of the time.")
@click.option("--simulate", is_flag=True, help="In virtual time instead of in the lab; needs --from.")
@click.option(
    "--from",
    "source",
    metavar="RUN|TRIAL",
    type=UserPath(exists=True, file_okay=False),
    help="What a simulation takes its costs from: measured before.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations that a simulated trial's runs are dealt to.",
)
@new_results_option
@inventory_option
def run(
    what: str | None,
    quick: bool,
    only: str | None,
    seed: int | None,
    again: bool,
    blocks: int | None,
    until: float | None,
    no_wait: bool,
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
    dasklab run results/delay_worker/20260101T120000Z --blocks 6   more blocks: narrower intervals
    dasklab run delay_worker --until 10%          as many blocks as that takes
    dasklab run delay_worker --only delay_ms=50   one cell again; of a run: dasklab reproduce RUN CELL
    dasklab run delay_worker --simulate --from RUN    foretold, with the costs that RUN measured
    """
    place = Path(what or "").absolute()
    directory: Path | None = None
    if what is None:
        _print_experiments()
    elif (place / "experiment.json").exists():
        if quick or only or seed is not None or simulate or source:
            raise click.UsageError(
                "a run goes on as it began: --quick, --only, --seed, --simulate and --from are for new ones"
            )
        directory = _go_on(
            place, inventory, again=again, blocks=blocks, until=until, waits=not no_wait, dry_run=dry_run
        )
    elif again:
        raise click.UsageError("--again is for a run that there is: dasklab run RUN --again")
    elif simulate and until is not None:
        raise click.UsageError("--until is for what is measured: a simulation takes --blocks")
    elif simulate != (source is not None):
        raise click.UsageError(
            "--simulate and --from go together: a simulation needs costs that were measured"
        )
    else:
        from dasklab.model import experiment

        name, content = experiment.load(str(place) if experiment.is_file(what) else what, quick)
        if blocks and until is None:
            content = content.model_copy(update={"blocks": blocks})
        order: Order = {"quick": quick, "seed": seed, "only": only}
        if source:
            directory = _simulate(source, seeds, root, name, content, dry_run, order)
        else:
            stop = _until(until, blocks)
            directory = _measure(inventory, root, name, content, dry_run, order, stop, not no_wait)
    if directory:
        from dasklab.commands.outcome import exit_status

        sys.exit(exit_status(directory))


def _until(share: float | None, blocks: int | None) -> Until | None:
    from dasklab.running import more_blocks

    return more_blocks.Until(share, blocks or more_blocks.MOST_BLOCKS) if share else None


class Order(TypedDict):
    """How trials are chosen and shuffled."""

    quick: bool
    seed: int | None
    only: str | None


def _go_on(
    directory: Path,
    inventory: Path,
    *,
    again: bool,
    blocks: int | None,
    until: float | None,
    waits: bool,
    dry_run: bool,
) -> Path | None:
    from dasklab.commands import progress, simulated
    from dasklab.commands.target import open_running
    from dasklab.machines.variables import open_lab
    from dasklab.results.storage import store
    from dasklab.running import driver, more_blocks
    from dasklab.running.setup import setup_of

    foretold = store.read_run(directory).setup.simulated
    setup = None if foretold else setup_of((open_lab if dry_run else open_running)(inventory))
    if foretold and until is not None:
        raise click.UsageError("--until is for what is measured: a simulation takes --blocks")
    begun = driver.resume(directory, setup, again=again)
    if blocks and until is None:
        begun = more_blocks.extended(begun, blocks)
    if blocks and until is None and not dry_run:
        more_blocks.record(begun)
    if dry_run:
        _print_trials(begun.pending(), begun.experiment.run_s, begun.setup)
        return None
    if foretold:
        simulated.go_on(begun)
    else:
        progress.go_on(begun, inventory, _until(until, blocks), waits=waits)
    return begun.directory


def _measure(
    inventory: Path,
    root: Path,
    name: str,
    content: Experiment,
    dry_run: bool,
    order: Order,
    until: Until | None,
    waits: bool,
) -> Path | None:
    from dasklab.commands import progress
    from dasklab.commands.target import open_running
    from dasklab.machines.variables import open_lab
    from dasklab.running.setup import setup_of

    if dry_run:
        _dry_run(name, content, setup_of(open_lab(inventory)), order)
        return None
    open_running(inventory)
    return progress.start(inventory, root, name, content, until=until, waits=waits, **order)


def _simulate(
    source: Path, seeds: int, root: Path, name: str, content: Experiment, dry_run: bool, order: Order
) -> Path | None:
    from dasklab.commands.simulated import Calibrated

    calibrated = Calibrated.on(source, content, seeds)
    if dry_run:
        _dry_run(name, content, calibrated.setup, order)
        return None
    return calibrated.start(root, name, content, **order)


def _dry_run(name: str, content: Experiment, setup: Setup, order: Order) -> None:
    from dasklab.running.trials import plan

    trials = plan(name, content, setup, seed=order["seed"], only=order["only"])
    _print_trials(trials, content.run_s, setup)


def _print_trials(trials: list[Trial], run_s: float, setup: Setup) -> None:
    from dasklab.running.trials import estimate_s

    rows, total_s = [], 0.0
    for trial in trials:
        seconds = estimate_s(trial, run_s, setup.simulated is not None)
        total_s += seconds
        asked = "baseline" if trial.baseline else "null trial" if trial.null else trial.cell
        rows.append((trial.trial, f"{trial.warmups}+{trial.runs}", asked, f"about {clock(seconds)}"))
    print_table(("trial", "runs", "asked", "time"), rows)
    click.echo(f"{len(trials)} trials, about {clock(total_s)}")


def _print_experiments() -> None:
    from dasklab.model import experiment

    rows = [(name, experiment.load(name)[1].question) for name in experiment.names()]
    print_table(("experiment", "question"), rows)
