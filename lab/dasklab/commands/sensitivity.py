"""``dasklab sensitivity``: the effect of each resource on the time. What it needs is imported on use."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dasklab.console.options import on_option
from dasklab.console.path_types import UserPath
from dasklab.console.picture import save_picture
from dasklab.console.simulating import simulating
from dasklab.console.trust import require_trust, trust_option
from dasklab.predict import SEEDS
from dasklab.terminal import echo, print_prose, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from dasklab.model.files import Outcome
    from dasklab.predict.sensitivity import Effect, MeasuredTimes, Sensitivities, VariedWork
    from dasklab.results.run import Run, Trial


@click.command()
@click.argument("path", metavar="RUN|TRIAL|RECORD", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations of each change.",
)
@on_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sensitivity(path: Path, seeds: int, address: str | None, trusted: bool, as_json: bool) -> None:
    """Show what the time is sensitive to: the effect of a 1 % increase in each resource.

    The resources are rate, round trip, loss, the scheduler's and the workers' CPU, cores and workers. Each is
    halved and doubled in simulations with the trial's own costs. The command also prints above which rate
    faster links no longer help, and draws a picture into the trial's directory. A RECORD of any cluster is
    simulated as `dasklab whatif` does it.

    For a RUN, its baseline and null trials are used. If other trials of the run differ from them in the rate
    or the number of workers alone, the measured effect is printed as well.
    """
    from dasklab import records
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.predict.sensitivity import TrialTime, analyze, changes
    from dasklab.results.run import open_run

    run = open_run(path)
    is_record = not run.is_experiment and run.single.is_record
    with records.reading(run), simulations_on(address), simulating() as progress:
        if is_record:
            stored, measured = run.single, dict[str, dict[float, list[TrialTime]]]()
            work = _record_work(stored, seeds, progress.report)
        else:
            stored, measured, work = _trial_work(run, path, seeds, trusted=trusted)
        progress.expect(seeds * len(changes(work)))
        sensitivities = analyze(work, measured, progress.report)
    if as_json:
        echo(json.dumps(asdict(sensitivities) | {"knee_mbit": sensitivities.knee_mbit}))
        return
    _print(sensitivities, stored)

    def draw() -> Figure:
        from dasklab.predict import pictures

        return pictures.draw(sensitivities)

    save_picture("Picture", draw, stored.computed_file("sensitivity"))


def _record_work(record: Trial, seeds: int, report: Callable[[Outcome], None]) -> VariedWork:
    from dasklab.predict.record import read
    from dasklab.predict.record_simulations import RecordSimulations
    from dasklab.predict.sensitivity import VariedWork

    simulations = RecordSimulations.start(read(record), range(seeds), report)
    simulations.require_similar()
    return VariedWork.of_record(simulations)


def _trial_work(
    run: Run, path: Path, seeds: int, *, trusted: bool
) -> tuple[Trial, MeasuredTimes, VariedWork]:
    from dasklab.predict.calibrate import calibrations_of
    from dasklab.predict.sensitivity import VariedWork, measured_times
    from dasklab.predict.sources import baseline

    equal_trials = baseline(run)
    require_trust((stored.requested for stored in equal_trials), path, trusted=trusted)
    stored = equal_trials[0]
    measured = measured_times(run.campaign, stored.requested)
    work = VariedWork.of_trial(stored.requested, calibrations_of(equal_trials), range(seeds))
    return stored, measured, work


def _print(sensitivities: Sensitivities, trial: Trial) -> None:
    from dasklab.results.statistics.interval import format_interval

    print_prose(f"{trial}: a simulated repeat takes {format_interval(sensitivities.seconds, 's')}.\n")
    shares = [effect for effect in sensitivities.effects if effect.relative]
    tables = {
        ("1 % more of", "now"): [effect for effect in shares if effect.simulated],
        ("with", "now"): [effect for effect in sensitivities.effects if not effect.relative],
        ("1 % more of", "measured between"): [effect for effect in shares if not effect.simulated],
    }
    for heads, effects in tables.items():
        if effects:
            print_table((*heads, "time", "95 % interval"), map(_row, effects))
            echo()
    print_prose(_knee(sensitivities))


def _row(effect: Effect) -> tuple[str, ...]:
    """Return a resource, its amount, what more of it does to the time, and the interval of that."""
    from dasklab.results.statistics.interval import Interval, format_interval

    saved = effect.gain_pct
    if math.isnan(saved.low):
        return effect.name, effect.now, _saved(saved.value), ""
    if not saved.excludes(0):
        return effect.name, effect.now, "none shown", f"{_saved(saved.low)} to {_saved(saved.high)}"
    word = "less" if saved.value > 0 else "more"
    ends = sorted(map(abs, (saved.low, saved.high)))
    size, _, interval = format_interval(Interval(abs(saved.value), *ends), number=_two_digits).partition(" (")
    return effect.name, effect.now, f"{size} % {word}", interval.removesuffix(")")


def _saved(saved_pct: float) -> str:
    """Return a share of the time that is saved, or added if it is negative."""
    return f"{_two_digits(abs(saved_pct))} % {'more' if saved_pct < 0 else 'less'}"


def _two_digits(value: float) -> str:
    decimals = max(0, 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{decimals}f}"


def _knee(sensitivities: Sensitivities) -> str:
    from dasklab.model.forms.number_format import format_number
    from dasklab.predict.sensitivity import NEGLIGIBLE

    if not sensitivities.rates:
        return "The rate of the links is unknown, because hardly any data moved: it was not varied."
    fastest = format_number(max(sensitivities.rates))
    if sensitivities.knee_mbit is None:
        return f"Faster links help up to the fastest simulated rate, {fastest} Mbit/s."
    knee, share = format_number(sensitivities.knee_mbit), f"{NEGLIGIBLE * 100:.0f} %"
    return (
        f"Links faster than {knee} Mbit/s save less than {share} of the time, "
        f"up to {fastest} Mbit/s (simulated)."
    )
