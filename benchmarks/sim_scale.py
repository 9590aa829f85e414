"""Past this lab: 3 to 10,000 simulated workers, ten tasks for each, in one rack, in 40 racks, over two sites.

    python benchmarks/sim_scale.py --fit TRIAL --cells DIR --most 10000 --keep

Weak scaling: work grows with the workers, so a cluster that scales takes the same time and does ten times
the tasks per second on ten times the workers. All that was measured is of ``--fit``'s trial: what an
operation costs the scheduler's and a worker's event loop, and its workload's tasks; other workloads' tasks
are assumed, as ``ASSUMED`` says. Each cell is a file in DIR: what is there is not simulated again. Printed is
a row per cell and where each workload stops scaling; ``--keep`` writes that to
``lab/dasklab/sim/README.md`` and the picture beside it. ``--measured RUN`` takes a measured run over
numbers of workers (``many_workers``): fitted on its fewest workers, its other trials are foretold, and the
picture is solid up to its most workers.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from dasklab import record
from dasklab.errors import LabError
from dasklab.model.files import Outcome, Result
from dasklab.model.number_format import format_number
from dasklab.model.settings import Workload
from dasklab.model.trial import Trial
from dasklab.plotting import MORE, STYLE, mark, save
from dasklab.predict import farm, prediction
from dasklab.predict.calibrate import calibrate
from dasklab.predict.calibration import Calibration
from dasklab.predict.validation import HERE, kept
from dasklab.predict.whatif import PAYLOAD, scenario
from dasklab.results.storage import store
from dasklab.sim.scenario import Record, Scenario
from matplotlib.axes import Axes
from matplotlib.figure import Figure

README = HERE / "README.md"
PICTURE = HERE / "scale"
WORKERS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
TASKS_EACH = 10
WORKER_MBIT, SCHEDULER_MBIT, UPLINK_MBIT = 1_000, 10_000, 10_000
RACKS, RACK_MS, SITE_MS = 40, 0.05, 5.0
FEWEST_IN_RACKS = 100
ENOUGH = 0.9  # of the most tasks per second: from there on more workers bring nothing
SHORT: Record = (0.00026, 0.0, 100)  # as long as the shortest tasks of the study's array were recorded
# By workload: a task, what it gives away if it is one of a peer-to-peer shuffle, both in words.
ASSUMED: Mapping[str, tuple[Record, int, str]] = {
    "shuffle": (SHORT, 0, "0.26 ms, 100 B"),
    "groupby": (
        (0.010, 0.0, 1_600_000),
        1_600_000,
        "10 ms, 1.6 MB (100,000 groups), as much to shuffle",
    ),
    "merge": (SHORT, 0, "0.26 ms, 100 B"),
}
NAMES = {"array_study": "array", "shuffle": "shuffle", "groupby": "groupby", "merge": "tiny tasks"}
PLACES = ("one rack", f"{RACKS} racks", "two sites")


@dataclass(frozen=True)
class Cell:
    """What is simulated, and its file's name."""

    workload: str
    workers: int
    place: str

    @property
    def file(self) -> str:
        """Where its outcome is."""
        return f"{self.workload}-{self.workers}-{self.place.replace(' ', '-')}.json"


def cells(most: int) -> Iterator[Cell]:
    """The smallest first, so that whoever has no patience has something."""
    for workers in (count for count in WORKERS if count <= most):
        for place in PLACES if workers >= FEWEST_IN_RACKS else PLACES[:1]:
            yield from (Cell(workload, workers, place) for workload in NAMES)


def sized(name: str, workers: int) -> Workload:
    """About ten tasks a worker: the array has 7.9 for each chunk of a factor, groupby 6.6 a partition."""
    tasks = TASKS_EACH * workers
    across = max(2, round(math.sqrt(tasks / 7.9)))
    params: dict[str, dict[str, int]] = {
        "array_study": {"size": 1000 * across, "chunk": 1000},
        "shuffle": {"parts": max(2, round(math.sqrt(tasks)) - 1)},
        "groupby": {"partitions": round(tasks / 6.6), "rows": round(tasks / 6.6), "groups": 10},
        "merge": {"tasks": tasks - 1},
    }
    return Workload(name=name, params=dict(params[name]))


def racks(cell: Cell) -> list[dict[str, float]]:
    """Who stands where; at two sites scheduler and client stand at the first."""
    if cell.place == PLACES[0]:
        return []
    if cell.place == PLACES[1]:
        held = [len(range(rack, cell.workers, RACKS)) for rack in range(RACKS)]
        return [{"workers": here, "rate_mbit": UPLINK_MBIT, "delay_ms": RACK_MS} for here in held if here]
    here = cell.workers // 2
    there = {"workers": cell.workers - here, "rate_mbit": UPLINK_MBIT, "delay_ms": SITE_MS}
    return [{"workers": here}, there]


def asked(cell: Cell, trial: Trial, calibration: Calibration) -> Scenario:
    """The trial's costs, this cell's work and network; each machine has a core for each thread."""
    changes = {
        "workers": cell.workers,
        "cores_each": calibration.threads,
        "racks": racks(cell),
        "design": "light",
        "runs": 1,
        "warmups": 0,
        "bridge": "learning",
    }
    like = scenario(trial, calibration, changes, seed=0)
    own = cell.workload == trial.workload.name
    rates = dict.fromkeys(("scheduler", "client"), SCHEDULER_MBIT * PAYLOAD)
    rates |= dict.fromkeys(like.worker_names, WORKER_MBIT * PAYLOAD)
    return like.model_copy(
        update={
            "workload": sized(cell.workload, cell.workers),
            "tasks": like.tasks if own else {"assumed": (ASSUMED[cell.workload][0],)},
            "shuffled_bytes": like.shuffled_bytes if own else ASSUMED[cell.workload][1],
            "late_s": (),
            "rates_mbit": rates,
            "links": {},
            "driver_s": 0.0,
        }
    )


@dataclass(frozen=True)
class Point:
    """A simulated cell."""

    cell: Cell
    outcome: Outcome

    @property
    def seconds(self) -> float:
        """Of the run."""
        return self.outcome.runs[0].duration_s

    @property
    def rate(self) -> float:
        """Tasks per second."""
        return self.outcome.computed / self.seconds

    @property
    def busy(self) -> float:
        """Which share of the run the scheduler's event loop was busy."""
        return self.outcome.scheduler_busy_s / self.seconds

    def row(self) -> str:
        """Of the table."""
        one, run = self.outcome, self.outcome.runs[0]
        told = (
            NAMES[self.cell.workload],
            self.cell.place,
            f"{self.cell.workers:,}",
            f"{one.computed:,}",
            format_number(self.seconds),
            f"{self.rate:,.0f}",
            format_number(run.transfer_bytes / 1e9),
            f"{self.busy:.0%}",
            format_number(one.cpu_s),
            f"{one.memory_mb:,.0f}",
        )
        return f"| {' | '.join(told)} |"


HEAD = "| workload | where | workers | tasks | s | tasks/s | GB | scheduler busy | CPU s | RSS MB |"


def simulated(folder: Path, cell: Cell, trial: Trial, calibration: Calibration) -> Point:
    """Simulated and kept, whole or not at all."""
    path = folder / cell.file
    outcome = farm.simulate(asked(cell, trial, calibration))
    draft = path.with_suffix(".draft")
    draft.write_text(outcome.model_dump_json())
    draft.replace(path)
    return read(folder, cell)


def read(folder: Path, cell: Cell) -> Point:
    """A cell that was simulated."""
    return Point(cell, Outcome.model_validate_json((folder / cell.file).read_text()))


def knees(points: list[Point]) -> Iterator[str]:
    """Where each workload stops scaling."""
    for workload in NAMES:
        for place in PLACES:
            here = [one for one in points if (one.cell.workload, one.cell.place) == (workload, place)]
            if len(here) > 1:
                yield f"{NAMES[workload]}, {place}: {knee(here)}"


def knee(here: list[Point]) -> str:
    """The fewest workers that do next to as many tasks per second as any number does."""
    best = max(one.rate for one in here)
    enough = next(one for one in here if one.rate >= ENOUGH * best)
    if enough is here[-1]:
        return f"scales on beyond {enough.cell.workers:,} workers ({enough.rate:,.0f} tasks/s)"
    busy = f"the scheduler {enough.busy:.0%} busy"
    return f"stops at {enough.cell.workers:,} workers and {enough.rate:,.0f} tasks/s, {busy}"


@dataclass(frozen=True)
class Checked:
    """A measured trial beside its simulation."""

    workload: str
    workers: int
    measured_s: float
    simulated_s: float
    fit: bool

    def row(self) -> str:
        """Of the table."""
        off = "the fit's own, " if self.fit else ""
        return (
            f"| {self.workload} | {self.workers} | {self.measured_s:.2f} | {self.simulated_s:.2f} "
            f"| {off}{self.simulated_s / self.measured_s - 1:+z.0%} |"
        )


def checked(run: Path, seeds: int) -> list[Checked]:
    """A measured run's valid trials with Dask's own queuing, foretold from the one of fewest workers."""
    valid = [folder for folder in store.finished(run) if store.need(Result, folder).status == "ok"]
    trials = {folder: store.need(Trial, folder) for folder in valid}
    plain = [folder for folder in valid if trials[folder].resolved_scheduler.variant in (None, "dask")]
    plain = sorted(
        (folder for folder in plain if not trials[folder].null), key=lambda one: trials[one].workers
    )
    fit = next((folder for folder in plain if record.recorded(folder)), None)
    if fit is None:
        raise LabError(f"{run}: of no valid trial anything was recorded inside Dask")
    calibrations, once = (calibrate(fit),), {"design": "light", "runs": 1, "warmups": 0}
    found = []
    for folder in plain:
        trial = trials[folder]
        row, _ = prediction.foretold("", trial, calibrations, once, range(seeds))
        mean_s = prediction.measured([folder]).mean_s
        found.append(Checked(trial.workload.name, trial.workers, mean_s, row.mean_s, folder == fit))
    return found


def draw(points: list[Point], measured_to: int) -> Figure:
    """Tasks per second and the scheduler's share over workers; extrapolated is dashed and hatched."""
    with mpl.rc_context(STYLE):
        figure = Figure((12, 7), layout="constrained")
        axes = figure.subplots(2, len(PLACES), sharex=True, sharey="row")
        for column, place in enumerate(PLACES):
            here = [one for one in points if one.cell.place == place]
            above, below = axes[0][column], axes[1][column]
            for workload, colour in zip(NAMES, MORE, strict=False):
                mine = [one for one in here if one.cell.workload == workload]
                _line(above, mine, [one.rate for one in mine], measured_to, colour)
                _line(below, mine, [100 * one.busy for one in mine], measured_to, colour)
            for each in (above, below):
                _extrapolated(each, measured_to)
            above.set_title(place, loc="left")  # right is the mark
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
        mark(figure, "simulated; dashed: extrapolated")
    return figure


def _line(axes: Axes, mine: list[Point], values: list[float], measured_to: int, colour: str) -> None:
    if not mine:
        return
    workers = [one.cell.workers for one in mine]
    near = sum(count <= measured_to for count in workers)
    label = NAMES[mine[0].cell.workload]
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


def _extrapolated(axes: Axes, measured_to: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(WORKERS[0] / 1.5, WORKERS[-1] * 1.5)
    axes.axvspan(
        measured_to, WORKERS[-1] * 1.5, color="#ecebe6", hatch="//", alpha=0.35, zorder=0, linewidth=0
    )
    axes.text(measured_to * 1.15, 0.02, "extrapolated", transform=axes.get_xaxis_transform(), fontsize=8)


def report(points: list[Point], against: list[Checked], trial: Trial, measured_to: int) -> str:
    """The tables as Markdown."""
    assumed = "; ".join(f"{NAMES[name]} {told}" for name, (_, _, told) in ASSUMED.items())
    lines = [HEAD, "|---" * 10 + "|", *(point.row() for point in points), ""]
    lines += [
        f"Costs of event loops and the array's tasks: {trial.experiment}/{trial.trial} "
        f"({trial.workers} workers). Assumed: tasks of {assumed}.",
        f"Extrapolated is all past {measured_to} workers, and every row in {RACKS} racks or over two sites.",
        "",
        *(f"* {line}" for line in knees(points)),
    ]
    if against:
        lines += ["", "| workload | workers | measured s | simulated s | error |", "|---" * 5 + "|"]
        lines += [one.row() for one in against]
    return "\n".join(lines)


def shown(table: str) -> str:
    """The tables and the picture, as the README has them."""
    return f"{table}\n\n![Tasks per second and the scheduler's share, simulated]({PICTURE.name}.png)"


def main() -> None:
    """Simulate what is not there yet, print all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", type=Path, required=True, help="a measured trial: its costs and tasks")
    parser.add_argument("--cells", type=Path, required=True, help="directory with a file for each cell")
    parser.add_argument("--most", type=int, default=1000, help="workers; 10000 takes hours")
    parser.add_argument("--only", choices=NAMES, help="this workload's missing cells; the table has all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="simulations at once")
    parser.add_argument(
        "--measured", type=Path, metavar="RUN", help="over numbers of workers, to compare with"
    )
    parser.add_argument("--seeds", type=int, default=4, help="of the comparison")
    parser.add_argument(
        "--keep", action="store_true", help="table and picture into lab/dasklab/sim/README.md"
    )
    args = parser.parse_args()
    args.cells.mkdir(parents=True, exist_ok=True)
    trial, calibration = store.need(Trial, args.fit), calibrate(args.fit)

    def missing(cell: Cell) -> None:
        if not (args.cells / cell.file).exists():
            print(simulated(args.cells, cell, trial, calibration).row(), flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(missing, (cell for cell in cells(args.most) if args.only in (None, cell.workload))))
    there = [cell for cell in cells(max(WORKERS)) if (args.cells / cell.file).exists()]
    points = [read(args.cells, cell) for cell in there]
    against = checked(args.measured, args.seeds) if args.measured else []
    measured_to = max([trial.workers, *(one.workers for one in against)])
    table = report(points, against, trial, measured_to)
    print(f"\n{table}")
    if args.keep:
        README.write_text(kept(README.read_text(), Path(__file__).name, shown(table)))
        save(draw(points, measured_to), PICTURE)
        PICTURE.with_suffix(".svg").unlink()  # the README shows one picture


if __name__ == "__main__":
    main()
