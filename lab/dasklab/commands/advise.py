"""``dasklab advise``: candidates from simulations, advice from the lab. Packages are imported on use."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.commands.options import SEEDS, inventory_option, new_results_option
from dasklab.commands.trust import require_trust, trust_option, workloads_of
from dasklab.errors import LabError
from dasklab.path_types import UserPath
from dasklab.terminal import duration, print_table

if TYPE_CHECKING:
    from dasklab.model.experiment import Experiment
    from dasklab.model.files import Campaign, Outcome
    from dasklab.predict.advice import Candidate, Search
    from dasklab.predict.confirm import Confirmation, Confirmations
    from dasklab.results.statistics.interval import Interval


@click.command()
@click.argument("path", metavar="TRIAL|RUN", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations of each candidate.",
)
@click.option(
    "--confirm", is_flag=True, help="Measure the best three candidates in the lab, or resume measuring them."
)
@click.option("--runs", type=click.IntRange(2, 10_000), help="Runs of each of these trials.")
@click.option("--blocks", type=click.IntRange(1, 100), help="Blocks of that experiment.")
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@new_results_option
@inventory_option
def advise(
    path: Path,
    seeds: int,
    confirm: bool,
    runs: int | None,
    blocks: int | None,
    trusted: bool,
    as_json: bool,
    root: Path,
    inventory: Path,
) -> None:
    """Recommend Dask settings for this workload on this network.

    Settings are tried in simulations with the trial's own costs, one at a time, then the best ones in pairs.
    The results are candidates. With --confirm the lab compares the best three with the unchanged trial and
    its null trial. Only a setting that saves more time there than chance explains is advice. "Change nothing"
    is a possible answer.

    \b
    dasklab advise RUN               print candidates, and write the experiment that would confirm them
    dasklab advise RUN --confirm     run it and print the advice; resumes an interrupted run

    For a RUN, its baseline and null trials are used.
    """
    from dasklab.commands.whatif import calibrations_of
    from dasklab.model.trial import Trial
    from dasklab.predict import advice
    from dasklab.predict import confirm as confirming
    from dasklab.predict.sources import baseline
    from dasklab.results.storage import store

    directories = baseline(path)
    directory = directories[0]
    run, trial = confirming.measured_run(directory), store.need(Trial, directory)
    require_trust((store.need(Trial, folder).workload for folder in directories), path, trusted=trusted)
    if confirm:
        _check_same_lab(run, inventory, directory)
    calibrations = calibrations_of(directories)
    number = count(1)

    def report(outcome: Outcome) -> None:
        click.echo(f"  simulated {next(number)}: {outcome.cpu_s:.1f} s of CPU", err=True)

    search = advice.search(directory, trial, calibrations, range(seeds), report)
    best = search.best
    if not best:
        _print(directory, search, None, as_json)
        return
    experiment = confirming.experiment(run, trial, best, runs=runs, blocks=blocks)
    file = confirming.write(directory, experiment)
    if confirm:
        require_trust(workloads_of(experiment), path, trusted=trusted)
        _measure(root, experiment, inventory)
    confirmations = _confirmations(confirming.find_run(root, experiment), best, required=confirm)
    _print(directory, search, confirmations, as_json)
    if confirmations is None and not as_json:
        command, duration = _command(path, runs, blocks), _estimate(experiment, run)
        click.echo(f"\nTo confirm the best {len(best)}: {command}")
        click.echo(f"It takes about {duration} of the lab's time. Experiment: {file}")


def _check_same_lab(run: Campaign, inventory: Path, directory: Path) -> None:
    """Refuse another lab: its machines have other costs and another network, so other settings would help."""
    from dasklab.commands.target import open_running
    from dasklab.running.setup import setup_of

    if not run.setup.is_same_lab(setup_of(open_running(inventory))):
        raise LabError(
            f"{directory}: the lab of {inventory} differs from the one that measured this trial",
            "measure there first: dasklab run EXPERIMENT, then advise that run",
        )


def _measure(root: Path, experiment: Experiment, inventory: Path) -> None:
    """Start the run that confirms the candidates, or resume it."""
    from dasklab.commands import progress
    from dasklab.machines.inventory import Inventory
    from dasklab.predict import confirm
    from dasklab.running import driver
    from dasklab.running.setup import setup_of

    directory = confirm.find_run(root, experiment)
    if directory is None:
        progress.start(inventory, root, confirm.NAME, experiment, quick=False, seed=None, only=None)
        return
    ongoing = driver.resume(directory, setup_of(Inventory(inventory)))
    if ongoing.pending():
        progress.resume(ongoing, inventory)


def _confirmations(run: Path | None, best: list[Candidate], *, required: bool) -> Confirmations | None:
    """Judge the candidates by a run that confirms them, if all of its trials have finished."""
    from dasklab.predict import confirm
    from dasklab.results import load
    from dasklab.results.storage import store

    if run is None or len(store.finished(run)) < len(store.read_run(run).order):
        if required:
            raise LabError(f"{run}: some trials have not finished", "the same command resumes the run")
        return None
    return confirm.judge(load(run), best)


def _print(directory: Path, search: Search, confirmations: Confirmations | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_plain(search, confirmations)))
    elif confirmations is None:
        _print_candidates(directory, search)
    else:
        _print_advice(confirmations)


def _print_candidates(directory: Path, search: Search) -> None:
    from dasklab.predict.advice import NOT_SEARCHED
    from dasklab.predict.validation import Validated
    from dasklab.results.statistics.interval import format_interval

    click.echo(f"{directory}: a simulated run takes {format_interval(search.seconds, 's')}.\n")
    rows = [(entry.candidate.name, _time(entry.gain)) for entry in search.ranked]
    print_table(("Dask setting", "run time"), rows, title="simulated candidates, not advice")
    click.echo(
        "\nThese intervals contain the variation between seeds only. The prediction error was up to "
        f"{Validated.read().prediction_error:.0%} in 90 % of the validated trials."
    )
    reasons = "; ".join(f"{what}: {reason}" for what, reason in NOT_SEARCHED.items())
    click.echo(f"Not searched: {reasons}.")
    if not search.best:
        click.echo("Change nothing: no setting saved time in simulation, so there is nothing to confirm.")


def _print_advice(confirmations: Confirmations) -> None:
    rows = [
        (candidate.name, _measured_time(candidate), "confirmed" if candidate.confirmed else "not confirmed")
        for candidate in confirmations.candidates
    ]
    print_table(("Dask setting", "run time", "in the lab"), rows, title="measured")
    if confirmations.noise_floor == confirmations.noise_floor:
        click.echo(f"\nDifferences below {confirmations.noise_floor:.1%} could be chance.")
    else:
        click.echo("\nOne block is too few to estimate the noise floor: add --blocks 4.")
    confirmed = [candidate for candidate in confirmations.candidates if candidate.confirmed]
    for candidate in confirmed[:1]:
        click.echo(f"Advice: {_time(candidate.gain)} run time with\n{_settings(candidate)}")
    if not confirmed:
        click.echo("Change nothing: the lab confirmed none of them.")


def _measured_time(candidate: Confirmation) -> str:
    return "no valid trial" if candidate.gain.value != candidate.gain.value else _time(candidate.gain)


def _settings(candidate: Confirmation) -> str:
    return "\n".join(f"  {name}: {json.dumps(value)}" for name, value in candidate.settings.items())


def _time(gain: Interval) -> str:
    from dasklab.results.statistics.interval import Interval, format_reduction

    return format_reduction(Interval(*(100 * value for value in (gain.value, gain.low, gain.high))))


def _command(path: Path, runs: int | None, blocks: int | None) -> str:
    options = [f"--{name} {value}" for name, value in (("runs", runs), ("blocks", blocks)) if value]
    return " ".join(["dasklab advise", str(path), "--confirm", *options])


def _estimate(experiment: Experiment, run: Campaign) -> str:
    from dasklab.predict.confirm import NAME
    from dasklab.running.trials import estimate_s, plan

    trials = plan(NAME, experiment, run.setup)
    return duration(sum(estimate_s(trial, experiment.run_s) for trial in trials))


def _plain(search: Search, confirmations: Confirmations | None) -> dict[str, Any]:
    """Return candidates and confirmations as plain data."""
    candidates = [
        {"settings": dict(entry.candidate.settings), "simulated_gain": _ends(entry.gain)}
        for entry in search.ranked
    ]
    if confirmations is None:
        return {"candidates": candidates, "measured": None, "noise": None}
    measured = [
        {
            "settings": dict(candidate.settings),
            "gain": _ends(candidate.gain),
            "confirmed": candidate.confirmed,
        }
        for candidate in confirmations.candidates
    ]
    floor = confirmations.noise_floor
    return {"candidates": candidates, "measured": measured, "noise": floor if floor == floor else None}


def _ends(gain: Interval) -> list[float | None]:
    return [value if value == value else None for value in (gain.value, gain.low, gain.high)]
