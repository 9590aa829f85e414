"""``dasklab run``: run the trials of an experiment, continue a run, or print what would be run."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from dasklab.console.completion import complete_experiments
from dasklab.console.options import inventory_option, new_results_option, on_option
from dasklab.console.path_types import UserPath
from dasklab.console.trials.exit_status import HELP
from dasklab.console.trust import cells_of, require_trust, trust_experiment, trust_option
from dasklab.errors import LabError, did_you_mean
from dasklab.predict import SEEDS
from dasklab.terminal import counted, duration, echo, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dasklab.model.experiments.experiment import Experiment
    from dasklab.model.experiments.trial import RequestedTrial, Setup
    from dasklab.results.run import Run
    from dasklab.running.driver.more_blocks import StopRule

ONLY_SIMULATED = "--on is for simulations: use it with --simulate, or with a simulated run"


def _share(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """``10%`` or ``10`` -> 0.1."""
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < (share := float(text.removesuffix("%")) / 100) < 1:
            return share
    raise click.BadParameter(
        f"{text!r} is not a percentage between 0 and 100, such as 10%", context, parameter
    )


@click.command(epilog=HELP)
@click.argument("what", metavar="[EXPERIMENT|FILE|RUN]", required=False, shell_complete=complete_experiments)
@click.option("--quick", is_flag=True, help="Run the short form, meant for emulated machines.")
@click.option("--only", metavar="CELL", help="Run one cell, the baseline and the null trial: delay_ms=50")
@click.option("--seed", type=int, help="Shuffle the trials with this seed instead of the experiment's.")
@click.option("--again", is_flag=True, help="Run the invalid trials of a RUN again, too.")
@click.option(
    "--blocks", type=click.IntRange(1, 100), help="Number of blocks; each measures every cell once."
)
@click.option(
    "--until",
    metavar="PERCENT",
    callback=_share,
    help="Add blocks until the main metric's intervals are within e.g. 10%, up to 12 blocks or --blocks.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until other processes leave the node alone.")
@click.option("--skip-unsupported", is_flag=True, help="Run the other cells if this lab cannot run some.")
@click.option("--dry-run", is_flag=True, help="Print the trials in order and the estimated time.")
@click.option("--simulate", is_flag=True, help="Run in virtual time instead of in the lab; needs --from.")
@click.option(
    "--from",
    "source",
    metavar="RUN|TRIAL",
    type=UserPath(exists=True, file_okay=False),
    help="Measured run or trial that provides the costs for a simulation.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=SEEDS,
    show_default=True,
    help="Number of simulations that the repeats of a simulated trial are drawn from.",
)
@on_option
@trust_option
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
    skip_unsupported: bool,
    dry_run: bool,
    simulate: bool,
    source: Path | None,
    seeds: int,
    address: str | None,
    trusted: bool,
    root: Path,
    inventory: Path,
) -> None:
    """Run an experiment, or continue a run that was interrupted.

    EXPERIMENT is the name of an experiment that comes with dasklab (without it, all are listed), FILE an
    experiment of your own, and RUN the folder of a run. A RUN continues where it stopped: finished trials
    stay, failed trials are run again. With --only, its CELL is run again as a new run, with the settings,
    seed and faults of RUN: in the lab or simulated, as RUN was.

    \b
    dasklab run                           list the experiments
    dasklab run delay_worker --quick --dry-run
                                          print the trials and the estimated time
    dasklab run delay_worker --quick
    dasklab run results/delay_worker/20260101T120000Z
    dasklab run results/delay_worker/20260101T120000Z --again
                                          its invalid trials, too
    dasklab run results/delay_worker/20260101T120000Z --blocks 6
                                          more blocks, narrower intervals
    dasklab run delay_worker --until 10%  as many blocks as this precision takes
    dasklab run delay_worker --only delay_ms=50
                                          one cell alone, in every block
    dasklab run RUN --only delay_ms=50    the same cell again, from the same seed
    dasklab run delay_worker --simulate --from RUN
                                          simulated, with the costs measured in
                                          RUN
    """
    place = Path(what or "").absolute()
    if what is None:
        _print_experiments()
        return
    options: RunOptions = {"quick": quick, "seed": seed, "only": only}
    new_only = quick or seed is not None or source or skip_unsupported or (simulate and not only)
    is_run = (place / "experiment.json").exists()
    if is_run and new_only:
        raise click.UsageError(
            "--quick, --seed, --simulate, --from and --skip-unsupported are for new runs,"
            " and this is an existing run"
        )
    if is_run and only:
        if again or blocks or until is not None:
            raise click.UsageError(
                "--again, --blocks and --until continue a RUN; with --only a new run begins"
            )
        run = _repeat(
            *(place, only, seeds, root, inventory),
            simulate=simulate,
            wait=not no_wait,
            dry_run=dry_run,
            trusted=trusted,
            address=address,
        )
    elif is_run:
        run = _resume(
            *(place, inventory),
            again=again,
            blocks=blocks,
            until=until,
            wait=not no_wait,
            dry_run=dry_run,
            trusted=trusted,
            address=address,
        )
    else:
        _check_options(
            again=again,
            simulate=simulate,
            source=source,
            until=until,
            skip_unsupported=skip_unsupported,
            address=address,
        )
        from dasklab.model.experiments import experiment

        if place.is_dir() and what not in experiment.names():
            raise LabError(
                f"{place} is not a run: it has no experiment.json", "to list all runs: dasklab results"
            )
        name, content = experiment.load(str(place) if experiment.is_file(what) else what, quick)
        if experiment.is_file(what):
            trust_experiment(content, place, trusted=trusted)
        if source:
            require_trust([*cells_of(content), *_measured(source, content)], source, trusted=trusted)
        if blocks and until is None:
            content = content.model_copy(update={"blocks": blocks})
        if source:
            run = _simulate(source, seeds, root, name, content, dry_run, options, address=address)
        else:
            rule = _stop_rule(until, blocks)
            run = _measure(
                *(inventory, root, name, content, dry_run, options, rule),
                wait=not no_wait,
                skip_unsupported=skip_unsupported,
            )
    if run:
        from dasklab.console.trials.outcome import exit_status

        sys.exit(exit_status(run))


def _measured(source: Path, content: Experiment) -> Iterator[RequestedTrial]:
    """Yield the trials of a run or trial that simulations of an experiment take their costs from."""
    from dasklab.predict.sources import sources
    from dasklab.results.run import open_run

    workloads = [settings.workload for settings in cells_of(content)]
    for trials in sources(open_run(source)).values():
        yield from (trial.requested for trial in trials if trial.requested.workload in workloads)


class RunOptions(TypedDict):
    """How the trials of a new run are chosen and shuffled."""

    quick: bool
    seed: int | None
    only: str | None


def _check_options(
    *,
    again: bool,
    simulate: bool,
    source: Path | None,
    until: float | None,
    skip_unsupported: bool,
    address: str | None,
) -> None:
    if again:
        raise click.UsageError("--again is for an existing run: dasklab run RUN --again")
    if simulate and skip_unsupported:
        raise click.UsageError("a simulation always leaves out what it does not model")
    if simulate and until is not None:
        raise click.UsageError("--until is for measured runs; for a simulation use --blocks")
    if simulate != (source is not None):
        raise click.UsageError("a simulation needs measured costs: use --simulate and --from together")
    if address and not simulate:
        raise click.UsageError(ONLY_SIMULATED)


def _stop_rule(share: float | None, blocks: int | None) -> StopRule | None:
    from dasklab.running.driver import more_blocks

    return more_blocks.StopRule(share, blocks or more_blocks.MAX_BLOCKS) if share else None


def _resume(
    directory: Path,
    inventory: Path,
    *,
    again: bool,
    blocks: int | None,
    until: float | None,
    wait: bool,
    dry_run: bool,
    trusted: bool,
    address: str | None,
) -> Run | None:
    from dasklab.console.lab.target import open_running
    from dasklab.console.trials import progress, simulated
    from dasklab.machines.inventory.variables import open_lab
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.results.run import open_run
    from dasklab.running.driver import driver, more_blocks
    from dasklab.running.plan.setup import setup_of

    stored = open_run(directory)
    _note_changed_workloads(stored)
    is_simulated = stored.simulated is not None
    if is_simulated and until is not None:
        raise click.UsageError("--until is for measured runs; for a simulation use --blocks")
    if address and not is_simulated:
        raise click.UsageError(ONLY_SIMULATED)
    setup = None if is_simulated else setup_of((open_lab if dry_run else open_running)(inventory))
    active = driver.resume(stored, setup, again=again)
    if blocks and until is None:
        active = more_blocks.extended(active, blocks)
    if dry_run and not active.pending():
        echo("No trial is left to run.")
    elif dry_run:
        _print_trials(active.pending(), active.experiment.repeat_s, active.setup)
    if dry_run:
        return None
    require_trust(active.trials, directory, trusted=trusted)
    if blocks and until is None:
        more_blocks.record(active)
    if is_simulated:
        with simulations_on(address):
            simulated.go_on(active)
    else:
        progress.resume(active, inventory, _stop_rule(until, blocks), wait_for_quiet=wait)
    return active.opened_again()


def _repeat(
    directory: Path,
    cell: str,
    seeds: int,
    root: Path,
    inventory: Path,
    *,
    simulate: bool,
    wait: bool,
    dry_run: bool,
    trusted: bool,
    address: str | None,
) -> Run | None:
    """Run a cell of a stored run again: the same trials, seed and faults, as a new run.

    Raises:
        LabError: the run has no such cell.
    """
    from dasklab.console.trials.simulated import Calibrated
    from dasklab.model.experiments import cells
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.predict.simulated_lab import Calibrations
    from dasklab.results.run import open_run

    stored = open_run(directory)
    if address and not (simulate or stored.simulated):
        raise click.UsageError(ONLY_SIMULATED)
    name, content, document = stored.document.name, stored.experiment, stored.document
    if cell not in (names := cells.cell_names(content)):
        allowed = f"{'; '.join(names)}{did_you_mean(cell, names)}"
        raise LabError(f"{directory}: no cell {cell!r}; allowed: {allowed}")
    measured = [trial.requested for trial in stored.trials]
    require_trust([*cells_of(content), *measured], directory, trusted=trusted)
    options: RunOptions = {"quick": document.quick, "seed": document.seed, "only": cell}
    if not stored.simulated and not simulate:
        new = _measure(
            *(inventory, root, name, content, dry_run, options, None), wait=wait, skip_unsupported=False
        )
    elif not stored.simulated:
        new = _simulate(directory, seeds, root, name, content, dry_run, options, address=address)
    elif dry_run:
        _dry_run(name, content, stored.setup, options)
        return None
    else:
        with simulations_on(address):
            new = Calibrated(stored.require(Calibrations), stored.setup).start(root, name, content, **options)
    if new:
        echo(f"to compare: dasklab results compare {stored} {new}")
    return new


def _note_changed_workloads(stored: Run) -> None:
    """Print which workloads in the current folder are no longer those that a run keeps."""
    for name, source in stored.experiment.workload_sources.items():
        file = Path(f"{name}.py")
        if file.is_file() and file.read_text(encoding="utf-8", errors="replace") != source:
            echo(f"note  {file} has changed; this run continues with the one it started with", err=True)


def _measure(
    inventory: Path,
    root: Path,
    name: str,
    content: Experiment,
    dry_run: bool,
    options: RunOptions,
    rule: StopRule | None,
    *,
    wait: bool,
    skip_unsupported: bool,
) -> Run | None:
    from dasklab.console.lab.target import open_running
    from dasklab.console.trials import progress
    from dasklab.machines.inventory.variables import open_lab
    from dasklab.running.plan import capabilities

    if dry_run:
        setup = capabilities.setup_for(open_lab(inventory), name, content)
        trials = _dry_run(name, content, setup, options)
        capabilities.require_supported(name, trials, skip_unsupported=skip_unsupported)
        return None
    open_running(inventory)
    return progress.start(
        *(inventory, root, name, content),
        rule=rule,
        wait_for_quiet=wait,
        skip_unsupported=skip_unsupported,
        **options,
    )


def _simulate(
    source: Path,
    seeds: int,
    root: Path,
    name: str,
    content: Experiment,
    dry_run: bool,
    options: RunOptions,
    *,
    address: str | None,
) -> Run | None:
    from dasklab.console.trials.simulated import Calibrated
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.results.run import open_run

    with simulations_on(address):
        calibrated = Calibrated.from_measured(open_run(source), content, seeds)
        if dry_run:
            _dry_run(name, content, calibrated.setup, options)
            return None
        return calibrated.start(root, name, content, **options)


def _dry_run(name: str, content: Experiment, setup: Setup, options: RunOptions) -> list[RequestedTrial]:
    from dasklab.running.plan.trials import plan

    trials = plan(name, content, setup, seed=options["seed"], only=options["only"])
    _print_trials(trials, content.repeat_s, setup)
    return trials


def _print_trials(trials: list[RequestedTrial], repeat_s: float, setup: Setup) -> None:
    from dasklab.running.plan.trials import estimate_s

    rows, total_s = [], 0.0
    for trial in trials:
        seconds = estimate_s(trial, repeat_s, setup.simulated is not None)
        total_s += seconds
        time = "unsupported" if trial.unsupported else duration(seconds)
        cell = "baseline" if trial.baseline else trial.cell_title
        rows.append((trial.trial, f"{trial.warmups}+{trial.repeats}", cell, time))
    print_table(("trial", "warm-ups + repeats", "cell", "estimated time"), rows)
    echo(f"{counted(len(trials), 'trial')}, about {duration(total_s)}")


def _print_experiments() -> None:
    from dasklab.model.experiments import experiment

    rows = [(name, experiment.load(name)[1].question) for name in experiment.names()]
    print_table(("experiment", "question"), rows)
    echo("\nTo see an experiment's trials: dasklab run EXPERIMENT --dry-run")
