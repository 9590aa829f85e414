"""``dasklab whatif``: what a change would bring, simulated. What is behind it is imported on use."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dasklab.commands.options import SEEDS
from dasklab.errors import LabError
from dasklab.path_types import UserPath
from dasklab.terminal import print_table

if TYPE_CHECKING:
    from dasklab.model.files import Outcome
    from dasklab.predict.calibration import Calibration
    from dasklab.predict.prediction import Row

HEAD = ("what", "runs", "mean", "nine tenths of the runs", "may be", "moved between workers")


@click.command()
@click.argument("path", metavar="TRIAL|RUN", type=UserPath(exists=True, file_okay=False))
@click.option(
    "--set", "changes", metavar="SETTING=VALUE", multiple=True, help="A change; may be given again."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=SEEDS, show_default=True, help="Simulations of each."
)
@click.option(
    "--calibration",
    "file",
    type=UserPath(exists=True, dir_okay=False),
    help="That of another trial or machine, instead of this trial's own.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: a line per row.")
def whatif(path: Path, changes: tuple[str, ...], seeds: int, file: Path | None, as_json: bool) -> None:
    """Foretell a change: the real Dask in virtual time, with a trial's own costs.

    What was measured stands beside the same simulated: how far that is off says how far to believe the rest.
    "May be" is wider by what simulations missed of the trials that they were validated on.
    Of a RUN its baseline and null trials are taken, and seeds are dealt to them: what is foretold differs by
    as much as trials of one setting do. Calibrations are written beside the trials' files.

    \b
    dasklab whatif RUN                                   measured beside simulated
    dasklab whatif RUN --set lab_nic_rate_mbit=2500      another rate cap on scheduler and workers
    dasklab whatif TRIAL --set workers=64 --set cores_each=1 --set delay_ms=2
    dasklab whatif TRIAL --set workers=8 --set 'racks=[{workers: 4}, {workers: 4, delay_ms: 2}]'

    Settings are those of an experiment (bridge, runs, links.HOST.loss_pct, nics.HOST.rate_mbit, dask.*), and
    workers, threads, cores, cores_each, racks, rtt_ms, rtt_times, rate_times, queue_bytes, scheduler_speed,
    worker_speed.
    """
    from dasklab.model.trial import Trial
    from dasklab.predict import prediction
    from dasklab.predict.sources import baseline
    from dasklab.predict.validation import Validated
    from dasklab.predict.whatif import check, parse, scenario
    from dasklab.results.storage import store

    directories = baseline(path)
    trial, asked = store.need(Trial, directories[0]), parse(changes)
    check(trial, asked)  # before the calibration, which takes long
    calibrations = calibrations_of(directories, file)
    calibration = calibrations[0]
    wanted = scenario(trial, calibration, asked, seed=0)
    outside = list(Validated.read().outside(wanted))
    rows, unknown = [prediction.measured(directories)], dict[str, None]()
    settings: dict[str, dict[str, Any]] = {"simulated, as it was": {}} | (
        {f"simulated, {', '.join(changes)}": asked} if asked else {}
    )
    done = count(1)

    def told(outcome: Outcome) -> None:
        of = f"{next(done)} of {seeds * len(settings)}"
        click.echo(f"  simulated {of}: {outcome.cpu_s:.1f} s of CPU", err=True)

    for what, change in settings.items():
        found, outcomes = prediction.foretold(what, trial, calibrations, change, range(seeds), told)
        rows.append(found)
        unknown |= dict.fromkeys(prefix for outcome in outcomes for prefix in outcome.unknown)
    _tell(rows, outside, as_json)
    if as_json:
        return
    if outside:
        click.echo(f"Outside of what was validated, believe it less: {'; '.join(outside)}.")
    if wanted.cores:
        click.echo(f"All machines share {wanted.cores:.2g} cores; --set cores_each=N gives each its own.")
    click.echo(
        f"Before a full link stand {calibration.queue_bytes / 1e3:.0f} kB, {calibration.queue_origin}."
    )
    ran, here = calibration.versions.get("distributed"), version("distributed")
    if ran != here:
        click.echo(
            f"The trial ran distributed {ran}; what is simulated is the {here} that is installed here."
        )
    if unknown:
        click.echo(
            f"Tasks of {', '.join(unknown)} were not seen in the trial: they are like all others here."
        )


def calibrations_of(directories: list[Path], file: Path | None = None) -> tuple[Calibration, ...]:
    """Trials' own calibrations, each written beside the trial's files; or that of a file."""
    from dasklab.predict.calibrate import calibrate_each
    from dasklab.predict.calibration import Calibration
    from dasklab.results.storage import store

    if file is None:
        found = calibrate_each(directories)
        for directory, calibration in found.items():
            store.write(directory, calibration)
        return tuple(found.values())
    given = store.read_file(Calibration, file)
    if given is None:
        raise LabError(f"{file}: no such file")
    return (given,)


def _tell(rows: list[Row], outside: list[str], as_json: bool) -> None:
    from dasklab.predict.validation import Validated

    validated = Validated.read()
    wide = [validated.widened(row) if row.simulated else row for row in rows]
    if as_json:
        for row, may in zip(rows, wide, strict=True):
            may_be = {"may_low_s": may.low_s, "may_high_s": may.high_s} if row.simulated else {}
            click.echo(json.dumps(asdict(row) | may_be | ({"outside": outside} if row.simulated else {})))
        return
    cells = [
        (
            row.what,
            str(row.runs),
            f"{row.mean_s:.2f} s",
            f"{row.low_s:.2f} to {row.high_s:.2f} s",
            f"{may.low_s:.2f} to {may.high_s:.2f} s" if row.simulated else "",
            f"{row.transfer_bytes / 1e6:.0f} MB",
        )
        for row, may in zip(rows, wide, strict=True)
    ]
    print_table(HEAD, cells)
    off = rows[1].mean_s / rows[0].mean_s - 1
    click.echo(f"\nThe simulation of what was measured is off by {off:+z.0%} of the mean.")
