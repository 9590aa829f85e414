"""Beyond the lab: simulate 3 to 10,000 workers with ten tasks each, in one rack, in 40 racks, over two sites.

    python benchmarks/sim_scale.py --fit TRIAL --cells DIR --most 10000 --keep

This is weak scaling: the work grows with the workers, so a cluster that scales takes the same time and
executes ten times the tasks per second on ten times the workers. Measured are only the costs of ``--fit``'s
trial: those of the scheduler's and the workers' event loops, and the tasks of its workload. The tasks of
other workloads are assumed (see ``ASSUMED``). Each cell is a file in DIR and is not simulated twice.

Printed is a row per cell, and where each workload stops scaling. ``--keep`` writes that to
``docs/results/simulation-scale.md``, with a picture. ``--measured RUN`` compares with a measured run over
numbers of workers (``many_workers``): its trial with the fewest workers is fitted on, the others are
predicted, and the picture is solid up to its largest number of workers.
"""

from __future__ import annotations

import math
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--fit": (Path, "a measured trial: its costs and tasks"),
            "--cells": (Path, "folder with a file for each cell"),
            "--most": (1000, "workers; 10000 takes hours"),
            "--only": ([str], "simulate these workloads; the table has all"),
            "--jobs": (os.cpu_count() or 1, "simulations at the same time"),
            "--measured": (Path, "a run over numbers of workers to compare with"),
            "--seeds": (4, "simulations of each compared trial"),
            "--keep": (False, "write table and picture to the project's documents"),
        },
        smallest="--fit {trial} --cells {folder} --most 3 --only merge",
    )

import matplotlib as mpl
from dasklab import records
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Outcome
from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.trial_settings import Workload
from dasklab.plotting import MORE, STYLE, label_figure, save
from dasklab.predict import prediction
from dasklab.predict.calibrate import calibrate
from dasklab.predict.calibration import Calibration
from dasklab.predict.engine import processes
from dasklab.predict.validation import replace_block
from dasklab.predict.whatif import PAYLOAD, scenario
from dasklab.results.run import Run, Trial
from dasklab.results.storage import documents
from dasklab.sim.program import Record
from dasklab.sim.scenario import Scenario
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "simulation-scale.md"
PICTURE = DOCUMENT.with_suffix("")
WORKERS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
TASKS_EACH = 10
WORKER_MBIT, SCHEDULER_MBIT, UPLINK_MBIT = 1_000, 10_000, 10_000
RACKS, RACK_MS, SITE_MS = 40, 0.05, 5.0
FEWEST_IN_RACKS = 100
KNEE = 0.9  # of the most tasks per second: from this number of workers on, more do not help
SHORT: Record = (0.00026, 0.0, 100)  # as long as the shortest recorded tasks of the study's array
# By workload: a task, what it gives away if it is a transfer of a peer-to-peer shuffle, and both in words
ASSUMED: Mapping[str, tuple[Record, int, str]] = {
    "shuffle": (SHORT, 0, "0.26 ms, 100 B"),
    "groupby": (
        (0.010, 0.0, 1_600_000),
        1_600_000,
        "10 ms, 1.6 MB (100,000 groups), and as much to shuffle",
    ),
    "merge": (SHORT, 0, "0.26 ms, 100 B"),
}
NAMES = {"array_study": "array", "shuffle": "shuffle", "groupby": "groupby", "merge": "tiny tasks"}
PLACES = ("one rack", f"{RACKS} racks", "two sites")
HEAD = "| workload | where | workers | tasks | s | tasks/s | GB | scheduler busy | CPU s | RSS MB |"


@dataclass(frozen=True)
class ScaleCell:
    """What is simulated: a workload on a number of workers, in racks or not."""

    workload: str
    workers: int
    place: str

    @property
    def file(self) -> str:
        """Name of the file with its outcome."""
        return f"{self.workload}-{self.workers}-{self.place.replace(' ', '-')}.json"


def cells(most: int) -> Iterator[ScaleCell]:
    """Yield all cells, the smallest first, so that an interrupted benchmark has results."""
    for workers in (count for count in WORKERS if count <= most):
        for place in PLACES if workers >= FEWEST_IN_RACKS else PLACES[:1]:
            yield from (ScaleCell(workload, workers, place) for workload in NAMES)


def sized(name: str, workers: int) -> Workload:
    """Return a workload with about ten tasks per worker.

    The array has 7.9 tasks for each chunk of a factor, groupby 6.6 for each partition.
    """
    tasks = TASKS_EACH * workers
    across = max(2, round(math.sqrt(tasks / 7.9)))
    params: dict[str, dict[str, int]] = {
        "array_study": {"size": 1000 * across, "chunk": 1000},
        "shuffle": {"parts": max(2, round(math.sqrt(tasks)) - 1)},
        "groupby": {"partitions": round(tasks / 6.6), "rows": round(tasks / 6.6), "groups": 10},
        "merge": {"tasks": tasks - 1},
    }
    return Workload(name=name, params=dict(params[name]))


def racks(cell: ScaleCell) -> list[dict[str, float]]:
    """Return the racks of a cell. Of two sites, scheduler and client are at the first."""
    if cell.place == PLACES[0]:
        return []
    if cell.place == PLACES[1]:
        sizes = [len(range(rack, cell.workers, RACKS)) for rack in range(RACKS)]
        return [{"workers": size, "rate_mbit": UPLINK_MBIT, "delay_ms": RACK_MS} for size in sizes if size]
    first = cell.workers // 2
    remote = {"workers": cell.workers - first, "rate_mbit": UPLINK_MBIT, "delay_ms": SITE_MS}
    return [{"workers": first}, remote]


def scale_scenario(cell: ScaleCell, trial: RequestedTrial, calibration: Calibration) -> Scenario:
    """Return a scenario with the trial's costs and the cell's work and network; each thread has a core."""
    changes = {
        "workers": cell.workers,
        "cores_each": calibration.threads,
        "racks": racks(cell),
        "design": "light",
        "repeats": 1,
        "warmups": 0,
        "bridge": "learning",
    }
    base = scenario(trial, calibration, changes, seed=0)
    own = cell.workload == trial.workload.name
    rates = dict.fromkeys(("scheduler", "client"), SCHEDULER_MBIT * PAYLOAD)
    rates |= dict.fromkeys(base.worker_names, WORKER_MBIT * PAYLOAD)
    return base.model_copy(
        update={
            "workload": sized(cell.workload, cell.workers),
            "tasks": base.tasks if own else {"assumed": (ASSUMED[cell.workload][0],)},
            "shuffled_bytes": base.shuffled_bytes if own else ASSUMED[cell.workload][1],
            "late_s": (),
            "rates_mbit": rates,
            "links": {},
            "driver_s": 0.0,
        }
    )


@dataclass(frozen=True)
class Point:
    """A cell and the outcome of its simulation."""

    cell: ScaleCell
    outcome: Outcome

    @property
    def seconds(self) -> float:
        return self.outcome.repeats[0].duration_s

    @property
    def tasks_per_s(self) -> float:
        return self.outcome.computed / self.seconds

    @property
    def busy(self) -> float:
        """The share of the run in which the scheduler's event loop was busy."""
        return self.outcome.scheduler_busy_s / self.seconds

    def row(self) -> str:
        """Return the row of the table."""
        values = (
            NAMES[self.cell.workload],
            self.cell.place,
            f"{self.cell.workers:,}",
            f"{self.outcome.computed:,}",
            format_number(self.seconds),
            f"{self.tasks_per_s:,.0f}",
            format_number(self.outcome.repeats[0].transfer_bytes / 1e9),
            f"{self.busy:.0%}",
            format_number(self.outcome.cpu_s),
            f"{self.outcome.memory_mb:,.0f}",
        )
        return f"| {' | '.join(values)} |"


def simulate(folder: Path, cell: ScaleCell, trial: RequestedTrial, calibration: Calibration) -> Point:
    """Simulate a cell and store its outcome, completely or not at all."""
    path = folder / cell.file
    outcome = processes.simulate(scale_scenario(cell, trial, calibration))
    draft = path.with_suffix(".draft")
    draft.write_text(outcome.model_dump_json())
    draft.replace(path)
    return read(folder, cell)


def read(folder: Path, cell: ScaleCell) -> Point:
    """Read the outcome of a simulated cell."""
    return Point(cell, Outcome.model_validate_json((folder / cell.file).read_text()))


def knees(points: list[Point]) -> Iterator[str]:
    """Yield a line for each workload and place: where it stops scaling."""
    for workload in NAMES:
        for place in PLACES:
            series = [
                point for point in points if (point.cell.workload, point.cell.place) == (workload, place)
            ]
            if len(series) > 1:
                yield f"{NAMES[workload]}, {place}: {knee(series)}"


def knee(series: list[Point]) -> str:
    """Describe the fewest workers that execute nearly as many tasks per second as any number does."""
    best = max(point.tasks_per_s for point in series)
    first = next(point for point in series if point.tasks_per_s >= KNEE * best)
    workers, rate = f"{first.cell.workers:,} workers", f"{first.tasks_per_s:,.0f} tasks/s"
    if first is series[-1]:
        return f"scales beyond {workers} ({rate})"
    return f"stops at {workers} and {rate}, the scheduler {first.busy:.0%} busy"


@dataclass(frozen=True)
class Comparison:
    """A measured trial and its simulation; ``fit``: its costs are the ones that were simulated."""

    workload: str
    workers: int
    measured_s: float
    simulated_s: float
    fit: bool

    def row(self) -> str:
        """Return the row of the table."""
        label = "the fit's own, " if self.fit else ""
        return (
            f"| {self.workload} | {self.workers} | {self.measured_s:.2f} | {self.simulated_s:.2f} "
            f"| {label}{self.simulated_s / self.measured_s - 1:+z.0%} |"
        )


def compare(run: Path, seeds: int) -> list[Comparison]:
    """Predict a run's valid trials with Dask's own scheduler from the one with the fewest workers."""
    trials = {trial.folder: trial.requested for trial in Run(run).trials if trial.is_valid}
    folders = [
        folder
        for folder, trial in trials.items()
        if trial.resolved_scheduler.variant in (None, "dask") and not trial.null
    ]
    folders.sort(key=lambda folder: trials[folder].workers)
    fit = next((folder for folder in folders if records.recorded(Trial(folder))), None)
    if fit is None:
        raise LabError(f"{run}: no valid trial has records of Dask")
    calibrations, settings = (calibrate(Trial(fit)),), {"design": "light", "repeats": 1, "warmups": 0}
    comparisons = []
    for folder in folders:
        trial = trials[folder]
        predicted, _ = prediction.predict("", trial, calibrations, settings, range(seeds))
        measured_s = prediction.measured([Trial(folder)]).mean_s
        comparisons.append(
            Comparison(trial.workload.name, trial.workers, measured_s, predicted.mean_s, folder == fit)
        )
    return comparisons


def draw(points: list[Point], measured_to: int) -> Figure:
    """Draw tasks per second and the scheduler's share over workers; extrapolated is dashed and hatched."""
    with mpl.rc_context(STYLE):
        figure = Figure((12, 7), layout="constrained")
        axes = figure.subplots(2, len(PLACES), sharex=True, sharey="row")
        for column, place in enumerate(PLACES):
            above, below = axes[0][column], axes[1][column]
            for workload, colour in zip(NAMES, MORE, strict=False):
                series = [
                    point for point in points if (point.cell.workload, point.cell.place) == (workload, place)
                ]
                _line(above, series, [point.tasks_per_s for point in series], measured_to, colour)
                _line(below, series, [100 * point.busy for point in series], measured_to, colour)
            for panel in (above, below):
                _shade_extrapolated(panel, measured_to)
            above.set_title(place, loc="left")  # the mark is on the right
            above.set_yscale("log")
            below.set_ylim(0, 105)
            below.set_xlabel("workers, ten tasks each")
        axes[0][0].set_ylabel("tasks per second")
        axes[1][0].set_ylabel("scheduler busy, %")
        figure.legend(
            *axes[0][0].get_legend_handles_labels(),
            ncols=len(NAMES),
            frameon=False,
            loc="outside lower center",
        )
        label_figure(figure, "simulated; dashed: extrapolated")
    return figure


def _line(axes: Axes, series: list[Point], values: list[float], measured_to: int, colour: str) -> None:
    if not series:
        return
    workers = [point.cell.workers for point in series]
    near = sum(count <= measured_to for count in workers)
    label = NAMES[series[0].cell.workload]
    axes.plot(
        workers[:near], values[:near], color=colour, marker="o", label=label if near else None, zorder=3
    )
    far = slice(max(0, near - 1), None)
    axes.plot(
        workers[far],
        values[far],
        color=colour,
        marker="o",
        markerfacecolor="white",
        linestyle="--",
        label=None if near else label,
    )


def _shade_extrapolated(axes: Axes, measured_to: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(WORKERS[0] / 1.5, WORKERS[-1] * 1.5)
    axes.axvspan(
        measured_to, WORKERS[-1] * 1.5, color="#ecebe6", hatch="//", alpha=0.35, zorder=0, linewidth=0
    )
    axes.text(measured_to * 1.15, 0.02, "extrapolated", transform=axes.get_xaxis_transform(), fontsize=8)


def report(
    points: list[Point], comparisons: list[Comparison], trial: RequestedTrial, measured_to: int
) -> str:
    """Return the tables as Markdown."""
    assumed = "; ".join(f"{NAMES[name]} {words}" for name, (_, _, words) in ASSUMED.items())
    lines = [HEAD, "|---" * 10 + "|", *(point.row() for point in points), ""]
    lines += [
        f"Costs of event loops and tasks of the array: {trial.experiment}/{trial.trial} "
        f"({trial.workers} workers). Assumed tasks: {assumed}.",
        f"Extrapolated: all rows above {measured_to} workers, in {RACKS} racks, or over two sites.",
        "",
        *(f"* {line}" for line in knees(points)),
    ]
    if comparisons:
        lines += ["", "| workload | workers | measured s | simulated s | error |", "|---" * 5 + "|"]
        lines += [comparison.row() for comparison in comparisons]
    return "\n".join(lines)


def with_picture(table: str) -> str:
    """Return the tables with the picture below them."""
    return f"{table}\n\n![Tasks per second and the scheduler's share, simulated]({PICTURE.name}.png)"


def main(args: Namespace) -> None:
    """Simulate the missing cells and print all."""
    args.cells.mkdir(parents=True, exist_ok=True)
    trial, calibration = documents.require(RequestedTrial, args.fit), calibrate(Trial(args.fit))

    def simulate_missing(cell: ScaleCell) -> None:
        if not (args.cells / cell.file).exists():
            print(simulate(args.cells, cell, trial, calibration).row(), flush=True)

    workloads = chosen(args.only, NAMES)
    requested = (cell for cell in cells(args.most) if cell.workload in workloads)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(simulate_missing, requested))
    simulated = (cell for cell in cells(max(WORKERS)) if (args.cells / cell.file).exists())
    points = [read(args.cells, cell) for cell in simulated]
    comparisons = compare(args.measured, args.seeds) if args.measured else []
    measured_to = max([trial.workers, *(comparison.workers for comparison in comparisons)])
    table = report(points, comparisons, trial, measured_to)
    print(f"\n{table}")
    if args.keep:
        DOCUMENT.write_text(replace_block(DOCUMENT.read_text(), Path(__file__).name, with_picture(table)))
        save(draw(points, measured_to), PICTURE)
        PICTURE.with_suffix(".svg").unlink()  # the document shows one picture


if __name__ == "__main__":
    main(ARGUMENTS)
