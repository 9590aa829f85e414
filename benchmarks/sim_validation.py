"""How far the simulation may be believed: it is fitted on a run's baseline and foretells the other cells.

    python benchmarks/sim_validation.py RUN...                     # each from its own baseline's trials
    python benchmarks/sim_validation.py --fit TRIAL RUN|TRIAL...   # from one trial alone

Calibrations are taken as `dasklab whatif` takes them: of a run from all trials of one setting of each
workload; ``--fit`` names another run or a trial for all. All other trials of these workloads are foretold,
with the settings that they had and nothing else of them. Printed is a row per cell, as Markdown: the mean
of what its trials measured and its interval over trials, the simulated mean with nine tenths of the simulated
runs, the errors of the mean and of the bytes moved. That interval is meant for a run of a new trial; inside
tells whether the measured mean lies in it, which is the goal, and how many of the measured runs do, which
should be nine of ten. `whatif` tells wider ones; the summary says how many means lie in those, each cell's
widened by what the others were missed by. Beside it stand two simpler predictors from the same fit:
``bytes``: computing and bytes over the rate, one after the other; ``replay``: the fit's time with what its
critical path spent on the wire scaled by the rate. A cell that cannot be foretold is in the table all the
same. ``--own`` foretells the fits' own trials instead, each from its likes: what is wrong there is no cap's
doing. ``--keep`` writes what was foretold to ``lab/dasklab/predict/validated.json``, by which
``whatif`` widens its intervals, and the table to ``lab/dasklab/sim/README.md``; both take the place of what
was there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
from dasklab.breakdown.causes import MESSAGE, WIRE
from dasklab.breakdown.explain import explain
from dasklab.commands.options import SEEDS
from dasklab.errors import LabError
from dasklab.model.files import Campaign, Result, Timings
from dasklab.model.nic import BYTES_PER_MBIT
from dasklab.model.trial import Trial
from dasklab.predict import prediction, sensitivity
from dasklab.predict.calibrate import calibrate
from dasklab.predict.calibration import Calibration
from dasklab.predict.sources import key, settings, sources
from dasklab.predict.validation import HERE, Case, Validated, kept
from dasklab.predict.whatif import scenario
from dasklab.results.statistics.inference import Values
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import store
from dasklab.sim.scenario import Scenario

README = HERE / "README.md"
RULE = "|---|---|---|---|---|---|---|---|"
HEAD = "| foretold | measured s | simulated s (9 of 10) | error | bytes | inside | bytes / rate | replay |"
GOALS = "median |error of the mean| 10 %, 90 % of cells within 20 %, bytes within 10 %, inside in 85 %"


@dataclass(frozen=True)
class Fit:
    """Like trials that calibrations were taken from, and what the simpler predictors need of them."""

    trial: Trial
    calibrations: tuple[Calibration, ...]
    makespan_s: float
    compute_s: float  # of a thread
    wire_s: float  # on the critical path
    moved_bytes: float

    @classmethod
    def of(cls, directories: list[Path]) -> Fit:
        """Calibrate on trials."""
        found = [explain(directory) for directory in directories]
        runs = [run for one in found for run in one.timed]
        threads = sum(runs[0].threads.values())
        computed = mean(float((run.tasks.stop - run.tasks.start).sum()) for run in runs)
        on_wire = [
            sum(one.summary.path_by_cause.get(cause, 0.0) for cause in (WIRE, MESSAGE)) for one in found
        ]
        return cls(
            store.need(Trial, directories[0]),
            tuple(calibrate(directory) for directory in directories),
            mean(one.summary.makespan_s for one in found),
            computed / threads,
            mean(on_wire),
            prediction.measured(directories).transfer_bytes,
        )

    def without(self, directory: Path) -> Fit:
        """The same without what one trial said of its costs."""
        name = store.need(Trial, directory).trial
        others = tuple(one for one in self.calibrations if one.trial != name)
        return replace(self, calibrations=others)

    def by_bytes(self, asked: Scenario) -> float:
        """Computing, then the bytes at the workers' rate."""
        first = self.calibrations[0]
        threads = self.trial.workers * first.threads / (asked.workers * asked.threads)
        moving = self.moved_bytes / asked.workers / _rate(asked)
        return first.driver_s + self.compute_s * threads + moving

    def by_replay(self, asked: Scenario) -> float:
        """The wire's part of the critical path takes longer by as much as the rate is less."""
        before = _rate(scenario(self.trial, self.calibrations[0], seed=0))
        return self.makespan_s - self.wire_s + self.wire_s * before / _rate(asked)


def _rate(asked: Scenario) -> float:
    """Bytes per second of the slowest worker's link; flooded, the workers share it."""
    rates = [asked.rates_mbit.get(name, 0.0) or 1e5 for name in asked.worker_names]
    links = [asked.links[name].rate_mbit for name in asked.worker_names if name in asked.links]
    shared = max(1, asked.workers - 1) if asked.bridge == "flooding" else 1
    return min([*rates, *(rate for rate in links if rate)]) * BYTES_PER_MBIT / shared


@dataclass(frozen=True)
class Cell:
    """Trials of one setting, foretold."""

    experiment: str
    name: str
    measured_s: float
    measured_low_s: float
    measured_high_s: float
    foretold_s: float
    foretold_low_s: float
    foretold_high_s: float
    runs: int
    runs_inside: int
    error: float
    bytes_error: float
    by_bytes_error: float
    by_replay_error: float
    case: Case  # for lab/dasklab/predict/validated.json

    @property
    def inside(self) -> bool:
        """Lies the measured mean where nine tenths of the simulated runs do?"""
        return self.foretold_low_s <= self.measured_s <= self.foretold_high_s


def foretell_cell(name: str, directories: list[Path], fit: Fit, seeds: int) -> Cell:
    """Foretell what trials of one setting took."""
    trial, truth = store.need(Trial, directories[0]), prediction.measured(directories)
    found, _ = prediction.foretold(trial.cell, trial, fit.calibrations, {}, range(seeds))
    asked = scenario(trial, fit.calibrations[0], seed=0)
    runs = np.concatenate([durations(directory) for directory in directories])
    took = sensitivity.spread([float(durations(directory).mean()) for directory in directories])
    return Cell(
        trial.experiment,
        name,
        truth.mean_s,
        took.low,
        took.high,
        found.mean_s,
        found.low_s,
        found.high_s,
        len(runs),
        int(((found.low_s <= runs) & (runs <= found.high_s)).sum()),
        found.mean_s / truth.mean_s - 1,
        found.transfer_bytes / truth.transfer_bytes - 1 if truth.transfer_bytes else 0.0,
        fit.by_bytes(asked) / truth.mean_s - 1,
        fit.by_replay(asked) / truth.mean_s - 1,
        Case.of(asked, found.mean_s / truth.mean_s - 1),
    )


def durations(directory: Path) -> Values:
    """Seconds of a trial's timed runs."""
    return np.array([run.duration_s for run in store.need(Timings, directory).timed])


def trials(paths: list[Path]) -> Iterator[list[Path]]:
    """All valid trials below runs and among trials, those of one setting together."""
    every: list[Path] = []
    for path in paths:
        every += store.finished(path) if (path / Campaign.FILE).exists() else [path]
    alike: dict[str, list[Path]] = {}
    for folder in every:
        result = store.read(Result, folder)
        if (result is None or result.status == "ok") and (folder / Timings.FILE).exists():
            alike.setdefault(json.dumps(settings(store.need(Trial, folder))), []).append(folder)
    yield from alike.values()


def asked_for(fits: dict[str, list[Path]], paths: list[Path], own: bool) -> Iterator[list[Path]]:
    """Which trials are foretold, cell by cell: all but the fits', or with ``own`` each of these."""
    used = [folder.resolve() for folders in fits.values() for folder in folders]
    for folders in trials(paths):
        if own:
            yield from ([folder] for folder in folders if folder.resolve() in used)
        elif others := [folder for folder in folders if folder.resolve() not in used]:
            yield others


def told(cell: Cell) -> str:
    """A row of the table."""
    return (
        f"| {cell.name} | {cell.measured_s:.2f} ({cell.measured_low_s:.2f} to {cell.measured_high_s:.2f}) "
        f"| {cell.foretold_s:.2f} ({cell.foretold_low_s:.2f} to {cell.foretold_high_s:.2f}) "
        f"| {cell.error:+z.0%} | {cell.bytes_error:+z.0%} | {'yes' if cell.inside else 'no'}, "
        f"{cell.runs_inside} of {cell.runs} "
        f"| {cell.by_bytes_error:+z.0%} | {cell.by_replay_error:+z.0%} |"
    )


def as_told(cell: Cell, cells: list[Cell]) -> bool:
    """Would the measured mean lie in what `whatif` tells, had it been validated on the other cells only?"""
    others = Validated(cases=tuple(other.case for other in cells if other is not cell))
    told = Interval(cell.foretold_s, cell.foretold_low_s, cell.foretold_high_s).widened(others.missed)
    return told.low <= cell.measured_s <= told.high


def summary(cells: list[Cell]) -> str:
    """What was reached, by experiment and in all, beside the goals."""
    names = sorted({cell.experiment for cell in cells})
    own = {name: [cell for cell in cells if cell.experiment == name] for name in names}
    parts = [f"{name}: {reached(of, cells)}" for name, of in own.items()] if len(names) > 1 else []
    return "\n".join([*(f"* {part}" for part in parts), f"* {reached(cells, cells)}", f"* goals: {GOALS}"])


def reached(cells: list[Cell], every: list[Cell]) -> str:
    """How well cells were foretold; ``every`` one says by how much intervals are to be wider."""
    errors = [abs(cell.error) for cell in cells]
    return (
        f"{len(cells)} cells: median error of the mean {median(errors):.0%}, "
        f"{mean(error <= 0.2 for error in errors):.0%} within 20 %, "
        f"bytes {median(abs(cell.bytes_error) for cell in cells):.0%}, "
        f"inside {mean(cell.inside for cell in cells):.0%}, "
        f"of runs {sum(cell.runs_inside for cell in cells) / sum(cell.runs for cell in cells):.0%}, "
        f"inside of what is told {mean(as_told(cell, every) for cell in cells):.0%}; "
        f"by bytes {median(abs(cell.by_bytes_error) for cell in cells):.0%}, "
        f"by replay {median(abs(cell.by_replay_error) for cell in cells):.0%}"
    )


def table(cells: list[Cell], missing: list[str]) -> str:
    """All of it, as the README has it."""
    return "\n".join([HEAD, RULE, *map(told, cells), *missing, "", summary(cells)])


def plain(cell: Cell) -> dict[str, object]:
    """For a file."""
    return {one.name: getattr(cell, one.name) for one in fields(cell)} | {"case": cell.case.model_dump()}


def fitted(paths: list[Path]) -> tuple[dict[str, list[Path]], dict[str, Fit | LabError]]:
    """By workload: which trials are fitted on, and the fit or why there is none."""
    origins: dict[str, list[Path]] = {}
    for path in paths:
        for work, folders in sources(path).items():
            origins.setdefault(work, []).extend(folders)
    fits: dict[str, Fit | LabError] = {}
    for work, folders in origins.items():
        try:
            fits[work] = Fit.of(folders)
        except LabError as why:
            fits[work] = why
    return origins, fits


def foretold(fit: list[Path], paths: list[Path], seeds: int, own: bool) -> Iterator[Cell | str]:
    """The cells of runs and trials; of one that cannot be foretold, its row of the table."""
    origins, fits = fitted(fit)
    for folders in asked_for(origins, paths, own):
        trial = store.need(Trial, folders[0])
        try:
            found = fits.get(key(trial.workload), LabError("no fit of its workload"))
            if isinstance(found, LabError):
                raise found
            if own:
                yield foretell_cell(trial.trial, folders, found.without(folders[0]), seeds)
            else:
                yield foretell_cell(trial.cell, folders, found, seeds)
        except LabError as why:
            mean_s = prediction.measured(folders).mean_s
            yield f"| {trial.cell} | {mean_s:.2f} | not foretold: {why.message} ||||||"


def main() -> None:
    """Fit, foretell, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fit",
        type=Path,
        action="append",
        metavar="TRIAL|RUN",
        help="may be given again; default: each its own",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--own", action="store_true", help="foretell the fits' own trials, each from its likes"
    )
    parser.add_argument("--json", type=Path, help="write the cells there as well")
    parser.add_argument("--keep", action="store_true", help="as what `dasklab whatif` was validated on")
    parser.add_argument("paths", type=Path, nargs="+", metavar="TRIAL|RUN")
    args = parser.parse_args()
    print(f"{HEAD}\n{RULE}")
    cells, missing = [], []
    for fit, paths in [(args.fit, args.paths)] if args.fit else [([path], [path]) for path in args.paths]:
        for found in foretold(fit, paths, args.seeds, args.own):
            print(found if isinstance(found, str) else told(found), flush=True)
            if isinstance(found, str):
                missing.append(found)
            else:
                cells.append(found)
    if cells:
        print(f"\n{summary(cells)}")
    if args.keep:
        store.write(HERE, Validated(cases=tuple(cell.case for cell in cells)))
        README.write_text(kept(README.read_text(), Path(__file__).name, table(cells, missing)))
    if args.json:
        args.json.write_text(json.dumps([plain(cell) for cell in cells], indent=1) + "\n")
    sys.exit(0 if cells else 1)


if __name__ == "__main__":
    main()
