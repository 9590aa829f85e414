"""Validate predictions: fit on the baseline of measured runs, predict their other cells, and compare.

    python benchmarks/sim_validation.py RUN...                     # fit on each run's own baseline
    python benchmarks/sim_validation.py RUN|TRIAL... --fit TRIAL   # fit on one trial alone

Calibrations are derived as `dasklab whatif` does it: from all trials of one setting of each workload. All
other trials of these workloads are predicted from the calibration and their own settings alone. With
``--own`` the trials of the fit are predicted instead, each from the others: their errors show what is wrong
without any change.

The table has one row per cell:

    measured s     mean of the trials, and its interval over trials
    simulated s    mean of the simulated repeats, and the interval that holds 90 % of them
    error, bytes   error of the mean, and of the bytes moved
    inside         whether the measured mean is in the interval of the simulated repeats (the goal), and how
                   many of the measured repeats are (ideally 90 %)
    bytes / rate   error of a simpler predictor: computing, then moving the bytes at the rate
    replay         error of another one: the fit's time, with the wire's share of its critical path scaled by
                   the rate

The summary also says how many measured means are inside of the wider interval that `dasklab whatif` prints;
each cell is widened by the errors of the others. ``--keep`` writes the cases to
``lab/dasklab/predict/validated.json`` and the table to ``docs/results/simulation-validation.md``, and
replaces what is there.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from statistics import mean, median

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "paths": ([Path], "trials and runs to predict"),
            "--fit": ([Path], "trials and runs to fit on, in place of each run's own baseline"),
            "--seeds": (0, "simulations of each cell, if not as many as `dasklab whatif` makes"),
            "--own": (False, "predict the trials of the fit, each from the others"),
            "--on": (str, "simulate on this Dask cluster: tcp://10.0.0.2:8786"),
            "--json": (Path, "also write the cells to this file"),
            "--keep": (False, "store the cases and the table in the project"),
        },
        smallest="{copy} --fit {trial} --seeds 1",
    )

import numpy as np
from dasklab.breakdown.model.causes import MESSAGE, WIRE
from dasklab.breakdown.show.explain import explain
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Campaign, Result, Timings
from dasklab.model.settings.nic import BYTES_PER_MBIT
from dasklab.predict import SEEDS, prediction
from dasklab.predict.calibrate import calibrate
from dasklab.predict.calibration import Calibration
from dasklab.predict.engine.choice import simulations_on
from dasklab.predict.sources import key, settings, sources
from dasklab.predict.validation import HERE, Case, Validated, replace_block
from dasklab.predict.whatif import scenario
from dasklab.results.run import Run, Trial, open_trial
from dasklab.results.statistics.inference import Values
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import documents
from dasklab.sim.scenario import Scenario
from scipy import stats

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "simulation-validation.md"
RULE = "|---|---|---|---|---|---|---|---|"
HEAD = "| cell | measured s | simulated s (90 %) | error | bytes | inside | bytes / rate | replay |"
GOALS = "median |error of the mean| 10 %, 90 % of cells within 20 %, bytes within 10 %, inside in 85 %"


@dataclass(frozen=True)
class CalibratedTrials:
    """Equal trials with their calibrations, and what the simpler predictors need of them.

    Attributes:
        compute_s: computing time of a repeat per thread.
        wire_s: time that the critical path of a repeat spent on the wire.
    """

    trial: RequestedTrial
    calibrations: tuple[Calibration, ...]
    makespan_s: float
    compute_s: float
    wire_s: float
    moved_bytes: float

    @classmethod
    def of(cls, directories: list[Path]) -> CalibratedTrials:
        explanations = [explain(open_trial(directory)) for directory in directories]
        repeats = [repeat for explanation in explanations for repeat in explanation.timed]
        threads = sum(repeats[0].threads.values())
        computed_s = mean(float((repeat.tasks.stop - repeat.tasks.start).sum()) for repeat in repeats)
        wire_s = [
            sum(explanation.summary.path_by_cause.get(cause, 0.0) for cause in (WIRE, MESSAGE))
            for explanation in explanations
        ]
        return cls(
            documents.require(RequestedTrial, directories[0]),
            tuple(calibrate(Trial(directory)) for directory in directories),
            mean(explanation.summary.makespan_s for explanation in explanations),
            computed_s / threads,
            mean(wire_s),
            prediction.measured(map(Trial, directories)).transfer_bytes,
        )

    def without(self, directory: Path) -> CalibratedTrials:
        """Leave out the calibration of one trial."""
        name = documents.require(RequestedTrial, directory).trial
        others = tuple(calibration for calibration in self.calibrations if calibration.trial != name)
        return replace(self, calibrations=others)

    def by_bytes(self, changed: Scenario) -> float:
        """Predict seconds: computing, then moving the bytes at the workers' rate."""
        first = self.calibrations[0]
        threads = self.trial.workers * first.threads / (changed.workers * changed.threads)
        moving_s = self.moved_bytes / changed.workers / _rate(changed)
        return first.driver_s + self.compute_s * threads + moving_s

    def by_replay(self, changed: Scenario) -> float:
        """Predict seconds: the wire's part of the critical path scales with the rate."""
        rate_before = _rate(scenario(self.trial, self.calibrations[0], seed=0))
        return self.makespan_s - self.wire_s + self.wire_s * rate_before / _rate(changed)


def _rate(changed: Scenario) -> float:
    """Return bytes/s of the slowest worker's link; on a flooding bridge the workers share it."""
    rates = [changed.rates_mbit.get(name, 0.0) or 1e5 for name in changed.worker_names]
    shaped = [changed.links[name].rate_mbit for name in changed.worker_names if name in changed.links]
    shared = max(1, changed.workers - 1) if changed.bridge == "flooding" else 1
    return min([*rates, *(rate for rate in shaped if rate)]) * BYTES_PER_MBIT / shared


@dataclass(frozen=True)
class PredictedCell:
    """Measured trials of one setting, and their prediction."""

    experiment: str
    name: str
    measured_s: float
    measured_low_s: float
    measured_high_s: float
    predicted_s: float
    predicted_low_s: float
    predicted_high_s: float
    repeats: int
    repeats_inside: int
    error: float
    bytes_error: float
    by_bytes_error: float
    by_replay_error: float
    case: Case

    @property
    def inside(self) -> bool:
        """Whether the measured mean is in the interval of the simulated repeats."""
        return self.predicted_low_s <= self.measured_s <= self.predicted_high_s


def predict_cell(name: str, directories: list[Path], fit: CalibratedTrials, seeds: int) -> PredictedCell:
    """Predict trials of one setting and compare."""
    trial, measured = (
        documents.require(RequestedTrial, directories[0]),
        prediction.measured(map(Trial, directories)),
    )
    predicted, _ = prediction.predict(trial.cell, trial, fit.calibrations, {}, range(seeds))
    changed = scenario(trial, fit.calibrations[0], seed=0)
    repeats_s = np.concatenate([durations_s(directory) for directory in directories])
    means_s = [float(durations_s(directory).mean()) for directory in directories]
    low_s, high_s = stats.t.interval(0.95, len(means_s) - 1, np.mean(means_s), stats.sem(means_s))
    error = predicted.mean_s / measured.mean_s - 1
    bytes_error = predicted.transfer_bytes / measured.transfer_bytes - 1 if measured.transfer_bytes else 0.0
    return PredictedCell(
        experiment=trial.experiment,
        name=name,
        measured_s=measured.mean_s,
        measured_low_s=low_s,
        measured_high_s=high_s,
        predicted_s=predicted.mean_s,
        predicted_low_s=predicted.low_s,
        predicted_high_s=predicted.high_s,
        repeats=len(repeats_s),
        repeats_inside=int(((predicted.low_s <= repeats_s) & (repeats_s <= predicted.high_s)).sum()),
        error=error,
        bytes_error=bytes_error,
        by_bytes_error=fit.by_bytes(changed) / measured.mean_s - 1,
        by_replay_error=fit.by_replay(changed) / measured.mean_s - 1,
        case=Case.of(changed, error),
    )


def durations_s(directory: Path) -> Values:
    """Return the durations of a trial's timed repeats."""
    return np.array([repeat.duration_s for repeat in documents.require(Timings, directory).timed])


def by_setting(paths: list[Path]) -> Iterator[list[Path]]:
    """Yield the valid trials of runs and of named trials, those of one setting together."""
    folders: list[Path] = []
    for path in paths:
        folders += [trial.folder for trial in Run(path).trials] if (path / Campaign.FILE).exists() else [path]
    equal: dict[str, list[Path]] = {}
    for folder in folders:
        result = documents.read(Result, folder)
        if (result is None or result.status == "ok") and (folder / Timings.FILE).exists():
            equal.setdefault(json.dumps(settings(documents.require(RequestedTrial, folder))), []).append(
                folder
            )
    yield from equal.values()


def to_predict(fits: dict[str, list[Path]], paths: list[Path], own: bool) -> Iterator[list[Path]]:
    """Yield the trials to predict, cell by cell: those not fitted on, or with ``own`` each that was."""
    fitted = [folder.resolve() for folders in fits.values() for folder in folders]
    for folders in by_setting(paths):
        if own:
            yield from ([folder] for folder in folders if folder.resolve() in fitted)
        elif others := [folder for folder in folders if folder.resolve() not in fitted]:
            yield others


def row(cell: PredictedCell) -> str:
    """Return a row of the table."""
    return (
        f"| {cell.name} | {cell.measured_s:.2f} ({cell.measured_low_s:.2f} to {cell.measured_high_s:.2f}) "
        f"| {cell.predicted_s:.2f} ({cell.predicted_low_s:.2f} to {cell.predicted_high_s:.2f}) "
        f"| {cell.error:+z.0%} | {cell.bytes_error:+z.0%} | {'yes' if cell.inside else 'no'}, "
        f"{cell.repeats_inside} of {cell.repeats} "
        f"| {cell.by_bytes_error:+z.0%} | {cell.by_replay_error:+z.0%} |"
    )


def inside_widened(cell: PredictedCell, cells: list[PredictedCell]) -> bool:
    """Whether the measured mean is in `whatif`'s interval, had it been validated on the other cells only."""
    others = Validated(cases=tuple(other.case for other in cells if other is not cell))
    interval = Interval(cell.predicted_s, cell.predicted_low_s, cell.predicted_high_s)
    wide = interval.widened(others.prediction_error)
    return wide.low <= cell.measured_s <= wide.high


def summary(cells: list[PredictedCell]) -> str:
    """Return what was reached, by experiment and in total, with the goals."""
    names = sorted({cell.experiment for cell in cells})
    by_experiment = {name: [cell for cell in cells if cell.experiment == name] for name in names}
    parts = (
        [f"{name}: {reached(own, cells)}" for name, own in by_experiment.items()] if len(names) > 1 else []
    )
    return "\n".join([*(f"* {part}" for part in parts), f"* {reached(cells, cells)}", f"* goals: {GOALS}"])


def reached(cells: list[PredictedCell], all_cells: list[PredictedCell]) -> str:
    """Describe how well cells were predicted; ``all_cells`` determine how far intervals are widened."""
    errors = [abs(cell.error) for cell in cells]
    return (
        f"{len(cells)} cells: median error of the mean {median(errors):.0%}, "
        f"{mean(error <= 0.2 for error in errors):.0%} within 20 %, "
        f"bytes {median(abs(cell.bytes_error) for cell in cells):.0%}, "
        f"inside {mean(cell.inside for cell in cells):.0%}, "
        f"repeats inside"
        f" {sum(cell.repeats_inside for cell in cells) / sum(cell.repeats for cell in cells):.0%}, "
        f"inside of the widened interval {mean(inside_widened(cell, all_cells) for cell in cells):.0%}; "
        f"by bytes {median(abs(cell.by_bytes_error) for cell in cells):.0%}, "
        f"by replay {median(abs(cell.by_replay_error) for cell in cells):.0%}"
    )


def table(cells: list[PredictedCell], missing: list[str]) -> str:
    """Return the whole table with its summary."""
    return "\n".join([HEAD, RULE, *map(row, cells), *missing, "", summary(cells)])


def plain(cell: PredictedCell) -> dict[str, object]:
    """Return a cell as JSON."""
    return {field.name: getattr(cell, field.name) for field in fields(cell)} | {
        "case": cell.case.model_dump()
    }


def fit_workloads(paths: list[Path]) -> tuple[dict[str, list[Path]], dict[str, CalibratedTrials | LabError]]:
    """Return by workload the trials that are fitted on, and the fit or why there is none."""
    origins: dict[str, list[Path]] = {}
    for path in paths:
        for workload, trials in sources(Run(path)).items():
            origins.setdefault(workload, []).extend(trial.folder for trial in trials)
    fits: dict[str, CalibratedTrials | LabError] = {}
    for workload, folders in origins.items():
        try:
            fits[workload] = CalibratedTrials.of(folders)
        except LabError as error:
            fits[workload] = error
    return origins, fits


def predict_cells(fit: list[Path], paths: list[Path], seeds: int, own: bool) -> Iterator[PredictedCell | str]:
    """Yield the predicted cells; for a cell that cannot be predicted, its row of the table."""
    origins, fits = fit_workloads(fit)
    for folders in to_predict(origins, paths, own):
        trial = documents.require(RequestedTrial, folders[0])
        try:
            fitted = fits.get(key(trial.workload), LabError("no fit of its workload"))
            if isinstance(fitted, LabError):
                raise fitted
            if own:
                yield predict_cell(trial.trial, folders, fitted.without(folders[0]), seeds)
            else:
                yield predict_cell(trial.cell, folders, fitted, seeds)
        except LabError as error:
            mean_s = prediction.measured(map(Trial, folders)).mean_s
            yield f"| {trial.cell} | {mean_s:.2f} | not predicted: {error.message} ||||||"


def main(args: Namespace) -> None:
    print(f"{HEAD}\n{RULE}")
    cells, missing = [], []
    fits = [(args.fit, args.paths)] if args.fit else [([path], [path]) for path in args.paths]
    predicted = (predict_cells(fit, paths, args.seeds or SEEDS, args.own) for fit, paths in fits)
    with simulations_on(args.on):
        for cell in chain.from_iterable(predicted):
            print(cell if isinstance(cell, str) else row(cell), flush=True)
            if isinstance(cell, str):
                missing.append(cell)
            else:
                cells.append(cell)
    if cells:
        print(f"\n{summary(cells)}")
    if args.keep:
        documents.write(HERE, Validated(cases=tuple(cell.case for cell in cells)))
        text = replace_block(DOCUMENT.read_text(), Path(__file__).name, table(cells, missing))
        DOCUMENT.write_text(text)
    if args.json:
        args.json.write_text(json.dumps([plain(cell) for cell in cells], indent=1) + "\n")
    sys.exit(0 if cells else 1)


if __name__ == "__main__":
    main(ARGUMENTS)
