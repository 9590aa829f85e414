"""How far the simulation may be believed: it is fitted on one trial and foretells others.

    python benchmarks/sim_validation.py --fit results/flooded/.../1-01-bridge=learning results/*/*

Each argument is a trial, or a run: all of its trials. ``--fit`` are the trials that calibrations are taken
from, one for each workload and its parameters; all other trials of that workload are foretold, with the
settings that they had and nothing else of them. Printed is a row per trial, as Markdown: measured mean with
its bootstrap interval, simulated mean with nine tenths of its runs, the errors of the mean and of the bytes
moved, and beside it two simpler predictors from the same fit: ``bytes``: computing and bytes over the rate,
one after the other; ``replay``: the fit's time with what its critical path spent on the wire scaled by the
rate. A trial that cannot be foretold is in the table all the same. ``--load`` takes one thing more from the
trial that is foretold: how long its workers waited for a core for each second on one, which other work on the
machine did to it. ``--keep`` writes what was foretold to ``lab/sim/validated.json``, by which ``whatif``
widens its intervals, and the table to ``lab/sim/README.md``; both take the place of what was there.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import mean, median

import numpy as np

from lab import inside
from lab.account.causes import MESSAGE, WIRE
from lab.account.trial import explain
from lab.errors import LabError
from lab.model.files import Campaign, Timings
from lab.model.nic import BYTES_PER_MBIT
from lab.model.trial import Trial
from lab.results import measures, store
from lab.sim import foretell, recorded
from lab.sim.calibrate import calibrate
from lab.sim.calibration import Calibration
from lab.sim.foretell import Row
from lab.sim.scenario import Scenario
from lab.sim.validated import HERE, Case, Validated
from lab.sim.whatif import scenario

README, MARKS = HERE / "README.md", ("<!-- by sim_validation.py --keep -->\n", "<!-- end -->\n")
RULE = "|---|---|---|---|---|---|---|---|"
HEAD = "| foretold | measured s | simulated s (9 of 10) | error | bytes | inside | bytes / rate | replay |"
GOALS = "median |error of the mean| 10 %, 90 % of cells within 20 %, bytes within 10 %, inside in 85 %"


@dataclass(frozen=True)
class Fit:
    """A trial that a calibration was taken from, and what the simpler predictors need of it."""

    trial: Trial
    calibration: Calibration
    makespan_s: float
    compute_s: float  # of a thread
    wire_s: float  # on the critical path
    moved_bytes: float
    known: dict[str, Row] = field(default_factory=dict)  # by scenario: the same settings are simulated once

    def foretold(self, trial: Trial, changes: dict[str, float], seeds: int) -> Row:
        """What is simulated for a trial."""
        asked = scenario(trial, self.calibration, changes, seed=0).model_dump_json()
        if asked not in self.known:
            found, _ = foretell.foretold("", trial, self.calibration, changes, range(seeds))
            self.known[asked] = found
        return self.known[asked]

    @classmethod
    def of(cls, directory: Path) -> Fit:
        """Calibrate on a trial."""
        trial, found = store.need(Trial, directory), explain(directory)
        runs = found.timed
        threads = sum(runs[0].threads.values())
        computed = mean(sum(task.stop - task.start for task in run.tasks) for run in runs)
        return cls(
            trial,
            calibrate(directory),
            found.summary.makespan_s,
            computed / threads,
            sum(found.summary.path_by_cause.get(cause, 0.0) for cause in (WIRE, MESSAGE)),
            foretell.measured(directory).transfer_bytes,
        )

    def by_bytes(self, asked: Scenario) -> float:
        """Computing, then the bytes at the workers' rate."""
        computing = self.compute_s * self.trial.workers / asked.workers
        return self.calibration.driver_s + computing + self.moved_bytes / asked.workers / _rate(asked)

    def by_replay(self, asked: Scenario) -> float:
        """The wire's part of the critical path takes longer by as much as the rate is less."""
        before = _rate(scenario(self.trial, self.calibration, seed=0))
        return self.makespan_s - self.wire_s + self.wire_s * before / _rate(asked)


def _rate(asked: Scenario) -> float:
    """Bytes per second of the slowest worker's link; flooded, the workers share it."""
    rates = [asked.rates_mbit.get(name, 0.0) or 1e5 for name in asked.worker_names]
    links = [asked.links[name].rate_mbit for name in asked.worker_names if name in asked.links]
    shared = max(1, asked.workers - 1) if asked.bridge == "flooding" else 1
    return min([*rates, *(rate for rate in links if rate)]) * BYTES_PER_MBIT / shared


@dataclass(frozen=True)
class Cell:
    """One foretold trial."""

    trial: str
    measured_s: float
    measured_low_s: float
    measured_high_s: float
    foretold_s: float
    foretold_low_s: float
    foretold_high_s: float
    error: float
    bytes_error: float
    by_bytes_error: float
    by_replay_error: float
    case: Case  # for lab/sim/validated.json

    @property
    def inside(self) -> bool:
        """Lies the measured mean where nine tenths of the simulated runs do?"""
        return self.foretold_low_s <= self.measured_s <= self.foretold_high_s


def foretell_cell(directory: Path, fit: Fit, seeds: int, load: bool) -> Cell:
    """Foretell one trial; with ``load`` under what the machine's other work took from it."""
    trial, truth = store.need(Trial, directory), foretell.measured(directory)
    changes = {"starved": recorded.starved(inside.load(directory))} if load else {}
    found = fit.foretold(trial, changes, seeds)
    asked = scenario(trial, fit.calibration, changes, seed=0)
    samples = [run.duration_s for run in store.need(Timings, directory).samples if not run.warmup]
    took = measures.mean(np.array(samples))
    return Cell(
        f"{trial.experiment}/{directory.name}",
        took.value,
        took.low,
        took.high,
        found.mean_s,
        found.low_s,
        found.high_s,
        found.mean_s / truth.mean_s - 1,
        found.transfer_bytes / truth.transfer_bytes - 1 if truth.transfer_bytes else 0.0,
        fit.by_bytes(asked) / truth.mean_s - 1,
        fit.by_replay(asked) / truth.mean_s - 1,
        Case.of(asked, found.mean_s / truth.mean_s - 1),
    )


def trials(paths: list[Path]) -> list[Path]:
    """All trials with timings below runs and among trials."""
    found = []
    for path in paths:
        folders = (
            [path / name for name in store.read_run(path).order]
            if (path / Campaign.FILE).exists()
            else [path]
        )
        found += [folder for folder in folders if (folder / Timings.FILE).exists()]
    return found


def told(cell: Cell) -> str:
    """A row of the table."""
    return (
        f"| {cell.trial} | {cell.measured_s:.2f} ({cell.measured_low_s:.2f} to {cell.measured_high_s:.2f}) "
        f"| {cell.foretold_s:.2f} ({cell.foretold_low_s:.2f} to {cell.foretold_high_s:.2f}) "
        f"| {cell.error:+.0%} | {cell.bytes_error:+.0%} | {'yes' if cell.inside else 'no'} "
        f"| {cell.by_bytes_error:+.0%} | {cell.by_replay_error:+.0%} |"
    )


def summary(cells: list[Cell]) -> str:
    """The goals beside what was reached."""
    errors = [abs(cell.error) for cell in cells]
    return (
        f"{len(cells)} cells: median error of the mean {median(errors):.0%}, "
        f"{mean(error <= 0.2 for error in errors):.0%} within 20 %, "
        f"bytes {median(abs(cell.bytes_error) for cell in cells):.0%}, "
        f"inside {mean(cell.inside for cell in cells):.0%}; "
        f"by bytes {median(abs(cell.by_bytes_error) for cell in cells):.0%}, "
        f"by replay {median(abs(cell.by_replay_error) for cell in cells):.0%} (goals: {GOALS})"
    )


def in_readme(text: str, cells: list[Cell]) -> str:
    """The README with this table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    table = "\n".join([HEAD, RULE, *map(told, cells), "", summary(cells)])
    return f"{before}{MARKS[0]}{table}\n{MARKS[1]}{after}"


def plain(cell: Cell) -> dict[str, object]:
    """For a file."""
    return {one.name: getattr(cell, one.name) for one in fields(cell)} | {"case": cell.case.model_dump()}


def main() -> None:
    """Fit, foretell, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fit", type=Path, action="append", required=True, help="a trial; may be given again"
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--load", action="store_true", help="take over how starved of cores each trial was")
    parser.add_argument("--json", type=Path, help="write the cells there as well")
    parser.add_argument("--keep", action="store_true", help="as what `dasklab whatif` was validated on")
    parser.add_argument("paths", type=Path, nargs="+", metavar="TRIAL|RUN")
    args = parser.parse_args()
    fits = {store.need(Trial, folder).workload.model_dump_json(): Fit.of(folder) for folder in args.fit}
    print(f"{HEAD}\n{RULE}")
    cells = []
    for folder in trials(args.paths):
        if folder.resolve() in [fit.resolve() for fit in args.fit]:
            continue
        fit = fits.get(store.need(Trial, folder).workload.model_dump_json())
        try:
            if fit is None:
                raise LabError("no fit of its workload")
            cells.append(foretell_cell(folder, fit, args.seeds, args.load))
            print(told(cells[-1]), flush=True)
        except LabError as why:
            mean_s = foretell.measured(folder).mean_s
            print(f"| {folder.name} | {mean_s:.2f} | not foretold: {why.message} ||||||")
    if cells:
        print(f"\n{summary(cells)}")
    if args.keep:
        store.write(HERE, Validated(cases=tuple(cell.case for cell in cells)))
        README.write_text(in_readme(README.read_text(), cells))
    if args.json:
        args.json.write_text(json.dumps([plain(cell) for cell in cells], indent=1) + "\n")
    sys.exit(0 if cells else 1)


if __name__ == "__main__":
    main()
