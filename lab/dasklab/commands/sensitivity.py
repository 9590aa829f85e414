"""``dasklab sensitivity``: what a run's time hangs on. What is behind it is imported on use."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.commands.options import SEEDS
from dasklab.path_types import UserPath
from dasklab.terminal import print_table

if TYPE_CHECKING:
    from dasklab.model.files import Outcome
    from dasklab.predict.sensitivity import Card, Line


@click.command()
@click.argument("path", metavar="TRIAL|RUN", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations of each change.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def sensitivity(path: Path, seeds: int, as_json: bool) -> None:
    """Say what the time of a run hangs on: what 1 % more of each thing would bring.

    Rate, round trip, loss, the scheduler's and the workers' CPU, cores, workers: each is halved and doubled
    in simulations with the trial's own costs. And from which rate on faster links bring nothing. Of a RUN its
    baseline and null trials are taken; where other trials had other rates or numbers of workers, and all else
    alike, what was measured between them is told as well.
    """
    from dasklab.commands.whatif import calibrations_of
    from dasklab.model.trial import Trial
    from dasklab.plotting import save
    from dasklab.predict import pictures
    from dasklab.predict import sensitivity as cards
    from dasklab.predict.sources import baseline
    from dasklab.results.storage import store

    directories = baseline(path)
    directory, calibrations = directories[0], calibrations_of(directories)
    trial = store.need(Trial, directory)
    done, all_of = count(1), seeds * len(cards.changes(trial, calibrations))

    def told(outcome: Outcome) -> None:
        click.echo(f"  simulated {next(done)} of {all_of}: {outcome.cpu_s:.1f} s of CPU", err=True)

    measured = cards.measured(directory.parent, trial)
    found = cards.card(trial, calibrations, range(seeds), measured, told)
    if as_json:
        click.echo(json.dumps(asdict(found) | {"knee_mbit": found.knee_mbit}))
        return
    _tell(found, directory)
    save(pictures.draw(found), directory / "card")
    click.echo(f"\nPicture: {directory / 'card.svg'}")


def _tell(found: Card, directory: Path) -> None:
    from dasklab.results.statistics.interval import format_interval

    click.echo(f"{directory}: simulated, a run takes {format_interval(found.seconds, 's')}.\n")
    rows = [
        (line.name, line.now, "1 % more of it" if line.relative else "with it", _words(line))
        for line in found.lines
    ]
    print_table(("what", "now", "change", "time"), rows)
    click.echo(f"\n{_knee(found)}")


def _words(line: Line) -> str:
    from dasklab.results.statistics.interval import format_reduction

    return f"{format_reduction(line.gain_pct)}{'' if line.simulated else ', measured'}"


def _knee(found: Card) -> str:
    from dasklab.model.number_format import format_number
    from dasklab.predict.sensitivity import LITTLE

    most = format_number(max(found.rates))
    if found.knee_mbit is None:
        return f"Faster links bring something up to the fastest that was simulated, {most} Mbit/s."
    knee = format_number(found.knee_mbit)
    return (
        f"Faster than {knee} Mbit/s brings nothing: less than {LITTLE:.0%} up to {most} Mbit/s (simulated)."
    )
