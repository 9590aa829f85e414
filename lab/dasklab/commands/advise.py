"""``dasklab advise``: candidates from simulations, advice from the lab; what it needs is imported on use."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.commands.options import SEEDS, inventory_option, new_results_option
from dasklab.errors import LabError
from dasklab.path_types import UserPath
from dasklab.terminal import duration, print_table

if TYPE_CHECKING:
    from dasklab.model.experiment import Experiment
    from dasklab.model.files import Campaign, Outcome
    from dasklab.predict.advice import Candidate, Search
    from dasklab.predict.confirm import Verdict, Verdicts
    from dasklab.results.statistics.interval import Interval


@click.command()
@click.argument("path", metavar="TRIAL|RUN", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--seeds", type=click.IntRange(2, 1000), default=SEEDS, show_default=True, help="Simulations of each."
)
@click.option("--confirm", is_flag=True, help="Measure the best three in the lab, or go on with that.")
@click.option("--runs", type=click.IntRange(2, 10_000), help="Of each trial there, instead of as it was.")
@click.option("--blocks", type=click.IntRange(1, 100), help="Of that experiment, instead of as it was.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@new_results_option
@inventory_option
def advise(
    path: Path,
    seeds: int,
    confirm: bool,
    runs: int | None,
    blocks: int | None,
    as_json: bool,
    root: Path,
    inventory: Path,
) -> None:
    """Say which of Dask's settings help this workload on this network.

    Settings are tried in simulations with the trial's own costs, one at a time, then the best in pairs.
    What comes out are candidates. With --confirm the lab measures the best three against the trial as it was
    and its exact copy; only what saves time there, by more than noise, is advice. "Change nothing" is one
    answer.

    \b
    dasklab advise RUN               candidates, and the experiment that would confirm them
    dasklab advise RUN --confirm     measure that, and say what came of it; goes on where it was interrupted

    Of a RUN its baseline and null trials are taken.
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
    if confirm:
        _same_lab(run, inventory, directory)
    calibrations = calibrations_of(directories)
    done = count(1)

    def told(outcome: Outcome) -> None:
        click.echo(f"  simulated {next(done)}: {outcome.cpu_s:.1f} s of CPU", err=True)

    found = advice.search(directory, trial, calibrations, range(seeds), told)
    best = found.best
    if not best:
        _tell(directory, found, None, as_json)
        return
    asked = confirming.experiment(run, trial, best, runs=runs, blocks=blocks)
    file = confirming.write(directory, asked)
    if confirm:
        _measure(root, asked, inventory)
    verdicts = _verdicts(confirming.begun(root, asked), best, required=confirm)
    _tell(directory, found, verdicts, as_json)
    if verdicts is None and not as_json:
        click.echo(
            f"\nTo confirm the best {len(best)}: {_again(path, runs, blocks)} ({_estimate(asked, run)}"
        )
        click.echo(f"of the lab's time, the experiment is {file})")


def _same_lab(run: Campaign, inventory: Path, directory: Path) -> None:
    """Other machines have other costs and another network: what helps there was not searched."""
    from dasklab.commands.target import open_running
    from dasklab.running.setup import setup_of

    if setup_of(open_running(inventory)) != run.setup:
        raise LabError(
            f"{directory}: the lab of {inventory} is not as the one that measured it",
            "measure there first: dasklab run EXPERIMENT, then advise that run",
        )


def _measure(root: Path, asked: Experiment, inventory: Path) -> None:
    """Begin the run that confirms, or go on with it."""
    from dasklab.commands import progress
    from dasklab.machines.inventory import Inventory
    from dasklab.predict import confirm
    from dasklab.running import driver
    from dasklab.running.setup import setup_of

    directory = confirm.begun(root, asked)
    if directory is None:
        progress.start(inventory, root, confirm.NAME, asked, quick=False, seed=None, only=None)
        return
    ongoing = driver.resume(directory, setup_of(Inventory(inventory)))
    if ongoing.pending():
        progress.resume(ongoing, inventory)


def _verdicts(run: Path | None, best: list[Candidate], *, required: bool) -> Verdicts | None:
    """What a run that confirms says, once all of its trials are through."""
    from dasklab.predict import confirm
    from dasklab.results import load
    from dasklab.results.storage import store

    if run is None or len(store.finished(run)) < len(store.read_run(run).order):
        if required:
            raise LabError(f"{run}: not all of its trials are through", "the same command goes on")
        return None
    return confirm.judge(load(run), best)


def _tell(directory: Path, found: Search, verdicts: Verdicts | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_plain(found, verdicts)))
        return
    if verdicts is None:
        _tell_candidates(directory, found)
    else:
        _tell_advice(verdicts)


def _tell_candidates(directory: Path, found: Search) -> None:
    from dasklab.predict.advice import NOT_SEARCHED
    from dasklab.predict.validation import Validated
    from dasklab.results.statistics.interval import format_interval

    click.echo(f"{directory}: simulated, a run takes {format_interval(found.seconds, 's')}.\n")
    rows = [(one.candidate.name, _words(one.gain)) for one in found.ranked]
    print_table(("setting of Dask", "time"), rows, title="simulated candidates, not advice")
    click.echo(
        f"\nIntervals are those of seeds; simulations missed measured times by up to "
        f"{Validated.read().missed:.0%} (nine tenths of the trials)."
    )
    why = "; ".join(f"{what}: {reason}" for what, reason in NOT_SEARCHED.items())
    click.echo(f"Not searched: {why}.")
    if not found.best:
        click.echo("Change nothing: no setting saved time in simulation, so there is none to confirm.")


def _tell_advice(verdicts: Verdicts) -> None:
    rows = [
        (one.name, _measured(one), "confirmed" if one.confirmed else "not confirmed") for one in verdicts.of
    ]
    print_table(("setting of Dask", "time", "in the lab"), rows, title="measured")
    if verdicts.floor == verdicts.floor:
        click.echo(f"\nDifferences of less than {verdicts.floor:.1%} could be chance.")
    else:
        click.echo("\nOne block is too few to tell what chance does: add --blocks 4.")
    confirmed = [one for one in verdicts.of if one.confirmed]
    for one in confirmed[:1]:
        click.echo(f"Advice, {_words(one.gain)} time than as it was:\n{_lines(one)}")
    if not confirmed:
        click.echo("Change nothing: the lab confirmed none of them.")


def _measured(verdict: Verdict) -> str:
    return "no valid trial" if verdict.gain.value != verdict.gain.value else _words(verdict.gain)


def _lines(verdict: Verdict) -> str:
    return "\n".join(f"  {name}: {json.dumps(value)}" for name, value in verdict.settings.items())


def _words(gain: Interval) -> str:
    from dasklab.results.statistics.interval import Interval, format_reduction

    return format_reduction(Interval(*(100 * value for value in (gain.value, gain.low, gain.high))))


def _again(path: Path, runs: int | None, blocks: int | None) -> str:
    asked = [f"--{name} {value}" for name, value in (("runs", runs), ("blocks", blocks)) if value]
    return " ".join(["dasklab advise", str(path), "--confirm", *asked])


def _estimate(asked: Experiment, run: Campaign) -> str:
    from dasklab.predict.confirm import NAME
    from dasklab.running.trials import estimate_s, plan

    trials = plan(NAME, asked, run.setup)
    return f"about {duration(sum(estimate_s(trial, asked.run_s) for trial in trials))}"


def _plain(found: Search, verdicts: Verdicts | None) -> dict[str, Any]:
    """Candidates as simulated, and what the lab said of those that it was asked about."""
    candidates = [
        {"settings": dict(one.candidate.settings), "simulated_gain": _ends(one.gain)} for one in found.ranked
    ]
    measured = None
    if verdicts:
        measured = [
            {"settings": dict(one.settings), "gain": _ends(one.gain), "confirmed": one.confirmed}
            for one in verdicts.of
        ]
    return {
        "candidates": candidates,
        "measured": measured,
        "noise": verdicts.floor if verdicts and verdicts.floor == verdicts.floor else None,
    }


def _ends(gain: Interval) -> list[float | None]:
    return [value if value == value else None for value in (gain.value, gain.low, gain.high)]
