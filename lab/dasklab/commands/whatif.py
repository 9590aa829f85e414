"""``dasklab whatif``: predict the effect of a change. Packages that it needs are imported on use."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.console.options import on_option
from dasklab.console.path_types import UserPath
from dasklab.console.simulating import simulating
from dasklab.console.trust import require_trust, trust_option
from dasklab.errors import LabError
from dasklab.model.forms.number_format import format_fixed
from dasklab.predict import SEEDS
from dasklab.terminal import echo, print_prose, print_table

if TYPE_CHECKING:
    from dasklab.predict.calibration import Calibration
    from dasklab.predict.prediction import RunSummary
    from dasklab.results.run import Trial
    from dasklab.sim.scenario import Scenario

HEAD = ("what", "repeats", "mean", "90 % of the repeats", "may be", "moved between workers")


@click.command()
@click.argument("path", metavar="RUN|TRIAL|RECORD", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--set", "assignments", metavar="SETTING=VALUE", multiple=True, help="A change; may be repeated."
)
@click.option(
    "--scale",
    "size",
    metavar="SETTING[=A,B,...]",
    help="For a RECORD: compare several values of workers, threads or rate_mbit.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=SEEDS,
    show_default=True,
    help="Simulations of each row.",
)
@click.option(
    "--calibration",
    "file",
    type=UserPath(exists=True, dir_okay=False),
    help="Use this calibration (of another trial or machine) instead of the trial's own.",
)
@on_option
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per row.")
def whatif(
    path: Path,
    assignments: tuple[str, ...],
    size: str | None,
    seeds: int,
    file: Path | None,
    address: str | None,
    trusted: bool,
    as_json: bool,
) -> None:
    """Predict the effect of a change by simulating the real scheduler in virtual time.

    The first rows are the measured trial and its simulation: their difference shows how well this trial can
    be predicted. The "may be" range includes the error found when predictions were validated.

    A RECORD of any cluster (`dasklab.record`, `dasklab record`) is simulated from what it holds: its tasks,
    graphs, transfers, and the client's waits and pauses. What it does not hold is refused or named.

    For a RUN, its baseline and null trials are used. Seeds are spread over these trials, so the prediction
    varies as much as repeated trials do. Each trial's calibration is written to its directory.

    \b
    dasklab whatif RUN                     measured and simulated
    dasklab whatif RUN --set lab_nic_rate_mbit=2500
                                           another cap on scheduler and workers
    dasklab whatif TRIAL --set workers=64 --set cores_each=1 --set delay_ms=2
    dasklab whatif RECORD --set workers=12 --set rate_mbit=1000 --set rtt_ms=5
    dasklab whatif RECORD --scale workers=2,4,8,16
                                           how many workers, and their costs
    dasklab whatif TRIAL --set 'racks=[{workers: 4}, {workers: 4, delay_ms: 2}]'

    Settings are those of an experiment (bridge, repeats, links.HOST.loss_pct, nics.HOST.rate_mbit, dask.*),
    and workers, threads, cores, cores_each, racks, rate_mbit, rate_times, rtt_ms, rtt_times, queue_bytes,
    scheduler_speed, worker_speed. Of a record, they are these, links.HOST.* and dask.*.
    """
    from dasklab import records
    from dasklab.predict import prediction
    from dasklab.predict.calibrate import calibrations_of
    from dasklab.predict.engine.choice import simulations_on
    from dasklab.predict.sources import baseline
    from dasklab.predict.validation import Validated
    from dasklab.predict.whatif import check, parse, scenario
    from dasklab.results.run import open_run

    run = open_run(path)
    if not run.is_experiment and run.single.is_record:
        if file:
            raise LabError(f"--calibration: the record {run} has costs of its own; leave the option out")
        with records.reading(run), simulations_on(address):
            if size:
                _scale_record(run.single, assignments, size, seeds, as_json=as_json)
            else:
                _predict_record(run.single, assignments, seeds, as_json=as_json)
        return
    if size:
        raise LabError(f"--scale {size}: it is for records, and {run} is none", "use --set for each size")
    measured_trials = baseline(run)
    trial, changes = measured_trials[0].requested, parse(assignments)
    require_trust((stored.requested for stored in measured_trials), path, trusted=trusted)
    check(trial, changes)  # before the calibration, which takes long
    unknown = dict[str, None]()
    changes_by_row: dict[str, dict[str, Any]] = {"simulated, unchanged": {}}
    if changes:
        changes_by_row[f"simulated, {', '.join(assignments)}"] = changes
    with simulations_on(address), simulating(seeds * len(changes_by_row)) as progress:
        calibrations = calibrations_of(measured_trials, file)
        changed = scenario(trial, calibrations[0], changes, seed=0)
        outside = list(Validated.read().outside(changed))
        rows = [prediction.measured(measured_trials)]
        for what, row_changes in changes_by_row.items():
            row, outcomes = prediction.predict(
                what, trial, calibrations, row_changes, range(seeds), progress.report
            )
            rows.append(row)
            unknown |= dict.fromkeys(prefix for outcome in outcomes for prefix in outcome.unknown)
    if as_json:
        _print_json(rows, outside)
        return
    _print_rows(rows)
    _print_notes(changed, calibrations[0], outside, list(unknown))


def _predict_record(record: Trial, assignments: tuple[str, ...], seeds: int, *, as_json: bool) -> None:
    from dasklab.predict.record_whatif import HEAD, predict
    from dasklab.predict.whatif import parse

    what, changes = ", ".join(assignments), parse(assignments)
    with simulating(seeds * (2 if changes else 1)) as progress:
        predicted = predict(record, changes, what, range(seeds), progress.report)
    if as_json:
        for row, wide in zip(predicted.rows, predicted.wide, strict=True):
            more = {"may_low_s": wide.low_s, "may_high_s": wide.high_s, "outside": predicted.outside}
            echo(json.dumps(asdict(row) | (more if row.simulated else {}) | {"notes": predicted.notes}))
        return
    print_table(HEAD, predicted.cells)
    print_prose("\n" + "\n".join(predicted.notes))


def _scale_record(
    record: Trial, assignments: tuple[str, ...], size: str, seeds: int, *, as_json: bool
) -> None:
    from dasklab.predict.record_scale import parse_scale, scale
    from dasklab.predict.whatif import parse

    name, amounts = parse_scale(size)
    with simulating() as progress:
        scaled = scale(record, name, amounts, parse(assignments), range(seeds), progress.report)
    if as_json:
        echo(json.dumps(asdict(scaled) | {"sentence": scaled.sentence}))
        return
    print_prose(f"{scaled.sentence}\n")
    print_table(scaled.head, scaled.cells)
    for note in scaled.notes:
        print_prose(f"\n{note}")


def _widened(rows: list[RunSummary]) -> list[RunSummary]:
    from dasklab.predict.validation import Validated

    validated = Validated.read()
    return [validated.widened(row) if row.simulated else row for row in rows]


def _print_json(rows: list[RunSummary], outside: list[str]) -> None:
    for row, wide in zip(rows, _widened(rows), strict=True):
        more = {"may_low_s": wide.low_s, "may_high_s": wide.high_s, "outside": outside}
        echo(json.dumps(asdict(row) | (more if row.simulated else {})))


def _print_rows(rows: list[RunSummary]) -> None:
    cells = [
        (
            row.what,
            str(row.repeats),
            f"{row.mean_s:.2f} s",
            f"{row.low_s:.2f} to {row.high_s:.2f} s",
            f"{wide.low_s:.2f} to {wide.high_s:.2f} s" if row.simulated else "",
            f"{row.transfer_bytes / 1e6:.0f} MB",
        )
        for row, wide in zip(rows, _widened(rows), strict=True)
    ]
    print_table(HEAD, cells)
    error = rows[1].mean_s / rows[0].mean_s - 1
    difference = format_fixed(100 * error, 0, "+")
    print_prose(f"\nThe simulation of the measured trial differs by {difference} % from the measured mean.")


def _print_notes(changed: Scenario, calibration: Calibration, outside: list[str], unknown: list[str]) -> None:
    """Print what a reader has to know about the simulation."""
    from dasklab.predict.validation import outside_note

    for note in outside_note(outside):
        print_prose(note)
    if changed.cores:
        print_prose(f"All machines share {changed.cores:.2g} cores; --set cores_each=N gives each its own.")
    queue_kb, origin = calibration.queue_bytes / 1e3, calibration.queue_origin.capitalize()
    print_prose(f"{origin} queue in front of a saturated link: {queue_kb:.0f} kB.")
    recorded, installed = calibration.versions.get("distributed"), version("distributed")
    if recorded != installed:
        print_prose(f"The trial ran distributed {recorded}; the simulation runs the installed {installed}.")
    if unknown:
        print_prose(f"The trial had no tasks of {', '.join(unknown)}; they are simulated like all others.")
