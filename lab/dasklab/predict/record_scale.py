"""What a recorded block would take with several sizes of the cluster, and what each of them costs."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasklab.breakdown.show.notebook import aligned, html_table
from dasklab.errors import LabError, did_you_mean
from dasklab.model.files import Outcome
from dasklab.model.settings.simulated import MANY_WORKERS
from dasklab.predict import prediction, record
from dasklab.predict.prediction import RunSummary
from dasklab.predict.record_whatif import outside_note, require_similar
from dasklab.predict.validation import Validated
from dasklab.results.run import Trial, open_trial
from dasklab.terminal import duration

SCALES = {"workers": "workers", "threads": "threads per worker", "rate_mbit": "Mbit/s on every link"}
"""What can be scaled, and how a sentence counts it."""
FACTORS = (0.5, 1, 2, 4)  # of what the cluster had
GOOD_ENOUGH = 0.1  # of the best time: how much longer the smallest good cluster may take
FAST_MBIT = 100_000.0
HEAD = ("", "simulated", "may be", "threads at work", "thread time paid", "of it idle")


@dataclass(frozen=True)
class ScalePoint:
    """One size of the cluster.

    Attributes:
        amount: of what is scaled.
        seconds: what the block takes, with intervals that include the error found in validation.
        threads: of all workers together.
        task_s: thread time of all tasks, as it was recorded.
    """

    amount: float
    seconds: RunSummary
    threads: int
    task_s: float

    @property
    def at_work(self) -> float:
        """The share of thread time in which tasks run."""
        return min(1.0, self.task_s / (self.threads * self.seconds.mean_s))

    @property
    def paid_s(self) -> float:
        """Thread time, used or not."""
        return self.threads * self.seconds.mean_s

    @property
    def cells(self) -> tuple[str, ...]:
        seconds = self.seconds
        return (
            f"{self.amount:g}",
            f"{seconds.mean_s:.2f} s",
            f"{seconds.low_s:.2f} to {seconds.high_s:.2f} s",
            f"{100 * self.at_work:.0f} %",
            duration(self.paid_s),
            duration(self.paid_s * (1 - self.at_work)),
        )


@dataclass(frozen=True)
class ClusterSizes:
    """The sizes, the smallest first.

    Attributes:
        name: of the setting that is scaled.
        most_workers, floor_s: so many workers, with fast links, limit the block least; what it takes then.
        notes: what a reader has to know, a sentence each.
    """

    name: str
    points: tuple[ScalePoint, ...]
    most_workers: int
    floor_s: float
    notes: tuple[str, ...]

    @property
    def best(self) -> ScalePoint:
        """The smallest size whose time is within ``GOOD_ENOUGH`` of the shortest."""
        shortest_s = min(point.seconds.mean_s for point in self.points)
        return next(p for p in self.points if p.seconds.mean_s <= shortest_s * (1 + GOOD_ENOUGH))

    @property
    def sentence(self) -> str:
        best, what = self.best, SCALES[self.name]
        return (
            f"The fewest {what} within 10 % of the best time: {best.amount:g} ({best.seconds.mean_s:.2f} s)."
            f" With {self.most_workers} workers and links of {FAST_MBIT / 1000:g} Gbit/s it takes"
            f" {self.floor_s:.2f} s."
        )

    def __str__(self) -> str:
        table = aligned([self.head, *(point.cells for point in self.points)])
        return "\n".join([self.sentence, "", *table, *(f"\n{note}" for note in self.notes)])

    __repr__ = __str__

    @property
    def head(self) -> tuple[str, ...]:
        return (SCALES[self.name], *HEAD[1:])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        table = html_table(self.head, [point.cells for point in self.points])
        return f"<p>{html.escape(self.sentence)}</p>{table}{notes}"


def parse_scale(text: str) -> tuple[str, list[float]]:
    """Parse ``workers`` or ``workers=2,4,8``.

    Raises:
        LabError: it cannot be scaled, or an amount is not a positive number.
    """
    name, equals, amounts = text.partition("=")
    if name not in SCALES:
        hint = did_you_mean(name, SCALES)
        raise LabError(f"--scale {name}: cannot be scaled; allowed: {', '.join(SCALES)}{hint}")
    whole = name != "rate_mbit"
    number_of = int if whole else float
    try:
        numbers = [float(number_of(amount)) for amount in amounts.split(",")] if equals else []
    except ValueError:
        numbers = [0.0]
    if any(number <= 0 for number in numbers):
        kind = "whole numbers above 0" if whole else "numbers above 0"
        raise LabError(f"--scale {text}: write the amounts as {kind}, for example {name}=2,4,8")
    return name, sorted(set(numbers))


def scale(
    folder: Trial,
    name: str,
    amounts: Sequence[float],
    changes: dict[str, Any],
    seeds: Iterable[int],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> ClusterSizes:
    """Simulate a record with several sizes of its cluster.

    Args:
        name: what is scaled, one of ``SCALES``.
        amounts: sizes; without any, a half to four times of what there was.
        changes: other settings that are changed in all simulations, nested as ``whatif.parse`` returns them.

    Raises:
        LabError: the record cannot be simulated, or its simulation is too far from what was measured.
    """
    work = record.read(folder)
    had = {"workers": work.calibration.workers, "threads": work.calibration.threads}
    if not amounts and name not in had:
        raise LabError(f"--scale {name}: name the amounts, for example {name}=100,1000")
    amounts = amounts or sorted({float(max(1, round(factor * had[name]))) for factor in FACTORS})
    sizes = [changes | {name: amount if name == "rate_mbit" else int(amount)} for amount in amounts]
    for size in sizes:
        record.check(work, size)  # before the simulations, which take long
    calibration, seeds = record.calibrate(work), list(seeds)
    validated, outside = Validated.read(), dict[str, None]()

    def simulate(settings: dict[str, Any]) -> RunSummary:
        scenarios = [record.scenario(work, calibration, settings, seed=seed) for seed in seeds]
        outside.update(dict.fromkeys(validated.outside(scenarios[0])))
        return prediction.simulated("simulated", scenarios, on_outcome)[0]

    require_similar(folder, work.measured_s, simulate({}).mean_s)
    task_s = float((work.repeat.tasks.stop - work.repeat.tasks.start).sum())
    points = []
    for amount, size in zip(amounts, sizes, strict=True):
        threads = size.get("workers", had["workers"]) * size.get("threads", had["threads"])
        points.append(ScalePoint(amount, validated.widened(simulate(size)), threads, task_s))
    notes = [*work.limits, *outside_note(outside)]
    most = min(MANY_WORKERS, max(len(work.repeat.tasks), had["workers"]))
    unlimited = {"workers": most, "rate_mbit": FAST_MBIT}
    floor_s = min(simulate(changes | unlimited).mean_s, *(point.seconds.mean_s for point in points))
    return ClusterSizes(name, tuple(points), most, floor_s, tuple(notes))


def scale_folder(folder: Path, name: str, amounts: Sequence[float], seeds: int) -> ClusterSizes:
    """Simulate the record in a folder with several sizes of its cluster."""
    name, _ = parse_scale(name)
    return scale(open_trial(folder), name, sorted(amounts), {}, range(seeds))
