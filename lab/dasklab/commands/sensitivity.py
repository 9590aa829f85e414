"""``dasklab sensitivity``: the effect of each resource on the time. What it needs is imported on use."""

from __future__ import annotations

import json
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
from dasklab.terminal import print_prose, print_table

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
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.predict.sensitivity import TrialTime, analyze, changes
    from dasklab.results.run import open_run

    run = open_run(path)
    is_record = not run.is_experiment and run.single.is_record
    with simulations_on(address), simulating() as progress:
        if is_record:
            stored, measured = run.single, dict[str, dict[float, list[TrialTime]]]()
            work = _record_work(stored, seeds, progress.report)
        else:
            stored, measured, work = _trial_work(run, path, seeds, trusted=trusted)
        progress.expect(seeds * len(changes(work)))
        sensitivities = analyze(work, measured, progress.report)
    if as_json:
        click.echo(json.dumps(asdict(sensitivities) | {"knee_mbit": sensitivities.knee_mbit}))
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
    require_trust((stored.requested.workload for stored in equal_trials), path, trusted=trusted)
    stored = equal_trials[0]
    measured = measured_times(run.campaign, stored.requested)
    work = VariedWork.of_trial(stored.requested, calibrations_of(equal_trials), range(seeds))
    return stored, measured, work


def _print(sensitivities: Sensitivities, trial: Trial) -> None:
    from dasklab.results.statistics.interval import format_interval

    print_prose(f"{trial}: a simulated repeat takes {format_interval(sensitivities.seconds, 's')}.\n")
    rows = [
        (effect.name, effect.now, "1 % more" if effect.relative else "the change itself", _time(effect))
        for effect in sensitivities.effects
    ]
    print_table(("resource", "now", "change", "time"), rows)
    print_prose(f"\n{_knee(sensitivities)}")


def _time(effect: Effect) -> str:
    from dasklab.results.statistics.interval import format_reduction

    return f"{format_reduction(effect.gain_pct)}{'' if effect.simulated else ', measured'}"


def _knee(sensitivities: Sensitivities) -> str:
    from dasklab.model.forms.number_format import format_number
    from dasklab.predict.sensitivity import NEGLIGIBLE

    if not sensitivities.rates:
        return "The rate of the links is unknown, because hardly any data moved: it was not varied."
    fastest = format_number(max(sensitivities.rates))
    if sensitivities.knee_mbit is None:
        return f"Faster links help up to the fastest simulated rate, {fastest} Mbit/s."
    knee, share = format_number(sensitivities.knee_mbit), f"{NEGLIGIBLE:.0%}"
    return (
        f"Links faster than {knee} Mbit/s save less than {share} of the time, "
        f"up to {fastest} Mbit/s (simulated)."
    )
