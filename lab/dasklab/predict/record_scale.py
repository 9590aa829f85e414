"""What a recorded block would take with several sizes of the cluster, and what each of them costs.

Thread time that is paid and in which no task runs is divided: each part is what the time is longer by than on
a cluster that is better in one more respect.

    client        no task is unfinished on ideal machines: all threads wait for the client
    few tasks     on ideal machines, fewer tasks could run than there are threads
    stragglers    on ideal machines, because tasks of a kind take differently long
    network       what links without limit save, in a simulation
    scheduler     the rest: decisions, messages and handoffs; waits for a core, where cores are shared
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from dasklab import records
from dasklab.breakdown.show.capacity import threads_in_use
from dasklab.breakdown.show.notebook import html_picture, html_table, html_text
from dasklab.errors import LabError, did_you_mean
from dasklab.model.files import Outcome
from dasklab.predict import record
from dasklab.predict.ideal_schedule import CLIENT, GRAPHS, IdealSchedule, schedule
from dasklab.predict.prediction import RunSummary
from dasklab.predict.record_memory import held_data
from dasklab.predict.record_simulations import Changes, RecordSimulations
from dasklab.predict.validation import outside_note
from dasklab.results.run import Trial, open_trial
from dasklab.sim.program import Program
from dasklab.terminal import duration, prose, table_text

SCALES = {"workers": "workers", "threads": "threads per worker", "rate_mbit": "Mbit/s on every link"}
"""What can be scaled, and how a sentence counts it."""
FACTORS = (0.5, 1, 2, 4)  # of what the cluster had
GOOD_ENOUGH = 0.1  # of the best time: how much longer the smallest good cluster may take
NO_LIMIT: Changes = {"rate_mbit": 100_000.0, "rtt_ms": 0.0}
NETWORK, SCHEDULER = "network", "scheduler"
PARTS = ("client", "few tasks", "stragglers", NETWORK, SCHEDULER)
"""What thread time is wasted on, in the order of ``ScalePoint.wasted_s``."""
HEAD = ("simulated", "may be", "paid", "at work", *PARTS)


@dataclass(frozen=True)
class ScalePoint:
    """One size of the cluster.

    Attributes:
        amount: of what is scaled.
        seconds: what the block takes, with intervals that include the error found in validation.
        threads: of all workers together.
        wasted_s: thread time in which no task runs, by ``PARTS``.
    """

    amount: float
    seconds: RunSummary
    threads: int
    wasted_s: dict[str, float]

    @property
    def paid_s(self) -> float:
        """Thread time, used or not."""
        return self.threads * self.seconds.mean_s

    @property
    def at_work(self) -> float:
        """The share of thread time in which tasks run."""
        return 1 - sum(self.wasted_s.values()) / self.paid_s

    @property
    def thread_s(self) -> dict[str, float]:
        """What thread time is used for."""
        return {"tasks": self.paid_s * self.at_work} | self.wasted_s

    @property
    def cells(self) -> tuple[str, ...]:
        seconds = self.seconds
        return (
            f"{self.amount:g}",
            f"{seconds.mean_s:.2f} s",
            f"{seconds.low_s:.2f} to {seconds.high_s:.2f} s",
            duration(self.paid_s),
            f"{100 * self.at_work:.0f} %",
            *(f"{100 * wasted_s / self.paid_s:.0f} %" for wasted_s in self.wasted_s.values()),
        )


@dataclass(frozen=True)
class ClusterSizes:
    """The sizes, the smallest first.

    Attributes:
        name: of the setting that is scaled.
        too_small: sizes that could not hold the data in memory; they are not simulated.
        floor_s: what the critical path takes, with workers and links without limit.
        limit: what limits the block from the largest size on.
        notes: what a reader has to know, a sentence each.
    """

    name: str
    points: tuple[ScalePoint, ...]
    too_small: tuple[float, ...]
    floor_s: float
    limit: str
    notes: tuple[str, ...]

    @property
    def best(self) -> ScalePoint:
        """The smallest size whose time is within ``GOOD_ENOUGH`` of the shortest."""
        shortest_s = min(point.seconds.mean_s for point in self.points)
        return next(p for p in self.points if p.seconds.mean_s <= shortest_s * (1 + GOOD_ENOUGH))

    @property
    def sentence(self) -> str:
        best = self.best
        return (
            f"The fewest {SCALES[self.name]} within 10 % of the best time: {best.amount:g}"
            f" ({best.seconds.mean_s:.2f} s); beyond it {self.limit} limits."
            f" With workers and links without limit it takes {self.floor_s:.2f} s."
        )

    @property
    def head(self) -> tuple[str, ...]:
        return (SCALES[self.name], *HEAD)

    @cached_property
    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, as texts."""
        unable = [(f"{amount:g}", "data too large", *[""] * (len(HEAD) - 1)) for amount in self.too_small]
        return [*unable, *(point.cells for point in self.points)]

    def __str__(self) -> str:
        table = table_text(self.head, self.cells)
        return "\n".join([prose(self.sentence), "", table, *(f"\n{prose(note)}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html_text(note)}</p>" for note in self.notes)
        table = html_table(self.head, self.cells)
        return f"<p>{html_text(self.sentence)}</p>{table}{notes}{self._picture()}"

    def _picture(self) -> str:
        """Draw time and thread time over the sizes, if matplotlib is installed."""
        try:
            from dasklab.predict import record_pictures
        except ImportError:
            return "<p>For a picture: pip install dasklab[report]</p>"
        by_size = {f"{point.amount:g}": point for point in self.points}
        seconds = {size: point.seconds for size, point in by_size.items()}
        thread_s = {size: point.thread_s for size, point in by_size.items()}
        return html_picture(record_pictures.sizes(self.head[0], seconds, thread_s, self.floor_s))


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
    sizes = {amount: changes | {name: amount if name == "rate_mbit" else int(amount)} for amount in amounts}
    for size in sizes.values():
        record.check(work, size)  # before the simulations, which take long
    data = held_data(work.explained.facts.memory, work.repeat.start, work.repeat.stop)
    too_small = [amount for amount, size in sizes.items() if not data.fits(_workers(size, had))]
    sizes = {amount: size for amount, size in sizes.items() if amount not in too_small}
    if not sizes:
        raise LabError(f"{folder}: no size could hold its data in memory", data.note)
    simulations = RecordSimulations.start(work, seeds, on_outcome)
    points = _points(simulations, sizes, had)
    floor = schedule(_program(simulations, changes))
    notes = [
        *filter(None, [threads_in_use(work.repeat)]),
        *work.limits,
        *([data.note] if too_small else []),
        *outside_note(simulations.outside(sizes.values())),
    ]
    return ClusterSizes(
        name, tuple(points), tuple(too_small), floor.seconds, _limit(floor, points[-1]), tuple(notes)
    )


def _points(
    simulations: RecordSimulations, sizes: dict[float, Changes], had: dict[str, int]
) -> list[ScalePoint]:
    """Simulate all sizes, and each once more with links without limit, with the first seed."""
    simulated = simulations.simulate({f"{amount:g}": size for amount, size in sizes.items()})
    without_limit = replace(simulations, seeds=simulations.seeds[:1]).simulate(
        {f"{amount:g}": size | {"links": {}} | NO_LIMIT for amount, size in sizes.items()}
    )
    points = []
    for amount, size in sizes.items():
        summary, outcomes = simulated[f"{amount:g}"]
        seconds = fmean(repeat.duration_s for repeat in outcomes[0].repeats if not repeat.warmup)
        network = max(0.0, 1 - without_limit[f"{amount:g}"][0].mean_s / seconds)
        threads = _workers(size, had) * int(size.get("threads", had["threads"]))
        wasted_s = _wasted_s(_program(simulations, size), threads, summary.mean_s, network)
        points.append(ScalePoint(amount, simulations.widened(summary), threads, wasted_s))
    return points


def _workers(size: Changes, had: dict[str, int]) -> int:
    return int(size.get("workers", had["workers"]))


def _program(simulations: RecordSimulations, changes: Changes) -> Program:
    """Return the program with the seconds that its tasks take with changes."""
    program = simulations.scenarios(changes)[0].workload
    assert isinstance(program, Program)  # a record's
    return program


def _wasted_s(program: Program, threads: int, seconds: float, network: float) -> dict[str, float]:
    """Divide the thread time in which no task runs; the parts add up to it.

    Args:
        network: the share of the time that links without limit save.
    """
    ideal, level = schedule(program, threads), schedule(program, threads, is_level=True)
    few_s = level.seconds - level.task_s / threads - level.client_s
    parts_s = {
        NETWORK: network * seconds,
        "client": level.client_s,
        "few tasks": few_s,
        "stragglers": ideal.seconds - level.seconds,
        SCHEDULER: seconds,  # all that is left
    }
    left_s = max(0.0, seconds - ideal.task_s / threads)
    for name, part_s in parts_s.items():
        parts_s[name] = min(left_s, max(0.0, part_s))
        left_s -= parts_s[name]
    return {name: threads * parts_s[name] for name in PARTS}


def _limit(floor: IdealSchedule, largest: ScalePoint) -> str:
    """Name what takes longest on the largest cluster: the network, the scheduler, or the critical path."""
    seconds = {f"the {name}": largest.wasted_s[name] / largest.threads for name in (NETWORK, SCHEDULER)}
    name = max(floor.path_s, key=lambda part: floor.path_s[part], default=CLIENT)
    path = name if name in (CLIENT, GRAPHS) else f"the path through `{name}`"
    return max([*seconds, path], key=lambda part: seconds.get(part, floor.seconds))


def scale_folder(folder: Path, name: str, amounts: Sequence[float], seeds: int) -> ClusterSizes:
    """Simulate the record in a folder with several sizes of its cluster."""
    name, _ = parse_scale(name)
    with records.reading(folder):
        return scale(open_trial(folder), name, sorted(amounts), {}, range(seeds))
