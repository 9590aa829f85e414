"""Pictures of time breakdowns over time: threads coloured by cause, and what else happened on the same axis.

Causes of one part of the time are shades of its colour, which the report has as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dasklab.breakdown.answers.facts.capacity import capacity
from dasklab.breakdown.answers.facts.memory import WorkerMemory
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.arrays import expand
from dasklab.breakdown.model.causes import CAUSES, PARTS, QUEUE, Cause
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show.wording import percent, place_in_code
from dasklab.plotting import STYLE

THREAD_COLUMNS = 1200  # each shows the cause of most of its time
MOST_WORKERS_NAMED = 8  # in a legend
LEAST_NAMED = 0.06  # share of the width: what is narrower gets no name
TRANSPARENT = (0.0, 0.0, 0.0, 0.0)
CHARACTERS = 150  # of a name that is as wide as the picture
RUNS, BUILDS, WAITS, LOCAL, OPERATION = "#2563a8", "#3d8a5f", "#c9c9c2", "#8a4fa3", "#5b8fc7"

MOST_OPERATION_ROWS = 4
ABOVE: dict[str, Any] = {  # a legend at the right, above what it explains
    "frameon": False,
    "fontsize": 8,
    "ncols": MOST_WORKERS_NAMED,
    "loc": "lower right",
    "bbox_to_anchor": (1, 0.98),
    "borderpad": 0,
}

Panel = tuple[float, Callable[[Axes], None]]
"""A row of a picture: how high it is, and what draws it."""


def over_time(
    name: str, repeat: Repeat, operations: Sequence[Operation], memory: Sequence[WorkerMemory]
) -> Figure:
    """Draw a repeat: the user's lines, the computations, threads by cause, tasks, workers, memory."""
    intervals = break_down(repeat)
    panels = [
        *_program_panels(repeat, operations),
        *_thread_panels(name, repeat, intervals),
        *_worker_panels(repeat, memory),
    ]
    return _figure(panels, repeat.makespan, [intervals])


def beside(repeats: Mapping[str, Repeat]) -> Figure:
    """Draw the threads of several repeats on one scale, and how many tasks each worker had."""
    breakdowns = {name: break_down(repeat) for name, repeat in repeats.items()}
    panels = [
        panel for name, repeat in repeats.items() for panel in _thread_panels(name, repeat, breakdowns[name])
    ]
    return _figure(panels, max(repeat.makespan for repeat in repeats.values()), breakdowns.values())


def _figure(panels: Sequence[Panel], seconds: float, breakdowns: Iterable[Intervals]) -> Figure:
    heights = [height for height, _ in panels]
    with mpl.rc_context(STYLE):
        figure = Figure((10, 1.2 + 0.75 * sum(heights)), layout="constrained")
        rows = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        for axes, (_, draw) in zip(rows, panels, strict=True):
            draw(axes)
        rows[0].set_xlim(0, seconds)
        rows[-1].set_xlabel("seconds since the start")
        codes = {code for intervals in breakdowns for code in np.unique(intervals.cause).tolist()}
        _cause_legend(figure, (CAUSES[code] for code in codes))
    return figure


def _program_panels(repeat: Repeat, operations: Sequence[Operation]) -> Iterator[Panel]:
    if len(repeat.lines.start):
        yield 0.7, lambda axes: _draw_lines(axes, repeat)
    if operations:
        rows = _rows_without_overlap(operations)
        yield 0.2 + 0.35 * (max(rows) + 1), lambda axes: _draw_operations(axes, repeat, operations, rows)


def _thread_panels(name: str, repeat: Repeat, intervals: Intervals) -> list[Panel]:
    return [
        (
            max(2.0, 0.4 * len(repeat.thread_rows[1])),
            lambda axes: _draw_threads(axes, name, repeat, intervals),
        ),
        (1.0, lambda axes: _draw_assigned(axes, repeat)),
    ]


def _worker_panels(repeat: Repeat, memory: Sequence[WorkerMemory]) -> Iterator[Panel]:
    if len(capacity(repeat, 0.0)) > 1:
        yield 0.7, lambda axes: _draw_workers(axes, repeat)
    if memory:
        yield 1.0, lambda axes: _draw_memory(axes, repeat, memory)


def _draw_lines(axes: Axes, repeat: Repeat) -> None:
    """Draw which line of the user's program ran, and whether it waited for the cluster."""
    lines = repeat.lines
    runs = ~(lines.waits | lines.local | lines.builds)
    kinds = [
        ("runs", RUNS, runs),
        ("builds a graph", BUILDS, lines.builds),
        ("waits for the cluster", WAITS, lines.waits),
        ("computes without the cluster", LOCAL, lines.local),
    ]
    for _, colour, kind in kinds:
        starts, seconds = lines.start[kind] - repeat.start, (lines.stop - lines.start)[kind]
        axes.broken_barh(list(zip(starts, seconds, strict=True)), (0.5, 0.5), color=colour, linewidth=0)
    names = [place_in_code(line) for line in lines.names]
    spans = zip(lines.start - repeat.start, lines.stop - repeat.start, lines.code.tolist(), strict=True)
    _name_spans(axes, repeat.makespan, ((start, stop, names[code]) for start, stop, code in spans), 0.2)
    handles = [Patch(color=colour, label=label) for label, colour, kind in kinds if kind.any()]
    axes.legend(handles=handles, **ABOVE)
    axes.set_ylim(0, 1)
    _label(axes, 0.5, "your\nprogram")


def _draw_operations(
    axes: Axes, repeat: Repeat, operations: Sequence[Operation], rows: Sequence[int]
) -> None:
    for operation, row in zip(operations, rows, strict=True):
        start, stop = operation.start - repeat.start, operation.stop - repeat.start
        axes.barh(row, stop - start, 0.9, start, color=OPERATION, linewidth=0.5, edgecolor="white")
        name = f"{operation.number}: {operation.title}"
        _name_spans(axes, repeat.makespan, [(start, stop, name)], row, color="white")
    axes.set_ylim(max(rows) + 0.5, -0.5)
    _label(axes, max(rows) / 2, "operations")


def _rows_without_overlap(operations: Sequence[Operation]) -> list[int]:
    """Return for each operation the first row in which it overlaps no other; from the last row on it may."""
    free_from: list[float] = []
    rows = []
    for operation in operations:
        row = next((row for row, stop in enumerate(free_from) if stop <= operation.start), len(free_from))
        row = min(row, MOST_OPERATION_ROWS - 1)
        free_from[row : row + 1] = [operation.stop]
        rows.append(row)
    return rows


def _name_spans(
    axes: Axes, seconds: float, spans: Iterable[tuple[float, float, str]], height: float, **style: Any
) -> None:
    """Write the names of spans that are wide enough into them, cut to their width."""
    for start, stop, name in spans:
        start, stop = max(0.0, start), min(seconds, stop)
        width = (stop - start) / seconds
        if width > LEAST_NAMED:
            most = int(CHARACTERS * width)
            text = name if len(name) <= most else f"{name[: most - 3]}..."
            axes.text((start + stop) / 2, height, text, fontsize=7, ha="center", va="center", **style)


def _label(axes: Axes, height: float, name: str) -> None:
    """Name an axis without a scale."""
    axes.set_yticks([height], [name], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)


def _draw_threads(axes: Axes, name: str, repeat: Repeat, intervals: Intervals) -> None:
    _, rows = repeat.thread_rows
    idle = intervals.seconds[intervals.is_cause(QUEUE)].sum() / (len(rows) * repeat.makespan)
    edges = (0, repeat.makespan, len(rows) - 0.5, -0.5)
    axes.imshow(_pixels(repeat, intervals, len(rows)), aspect="auto", extent=edges, interpolation="nearest")
    axes.set_yticks(range(len(rows)), [worker for worker, _ in rows])
    axes.grid(visible=False)
    title = f"{name}: {repeat.makespan:.2f} s; idle while others queue: {percent(idle, 1)} of the thread time"
    axes.set_title(title, loc="left", fontsize=10)


def _pixels(repeat: Repeat, intervals: Intervals, rows: int) -> npt.NDArray[np.float64]:
    """Return the colour of each pixel: that of the cause with most of its time; none before a worker came."""
    scale = THREAD_COLUMNS / repeat.makespan
    start, stop = (intervals.start - repeat.start) * scale, (intervals.stop - repeat.start) * scale
    first = np.clip(start.astype(np.int64), 0, THREAD_COLUMNS - 1)
    last = np.clip(stop.astype(np.int64), 0, THREAD_COLUMNS - 1)
    index, column = expand(first, last + 1)
    inside = np.minimum(stop[index], column + 1) - np.maximum(start[index], column)
    pixel = (intervals.lane[index] * len(CAUSES) + intervals.cause[index]) * THREAD_COLUMNS + column
    weight = np.bincount(pixel, inside, rows * len(CAUSES) * THREAD_COLUMNS).reshape(
        rows, len(CAUSES), THREAD_COLUMNS
    )
    colours = np.array([to_rgba(cause.colour) for cause in CAUSES], np.float64)
    pixels: npt.NDArray[np.float64] = colours[weight.argmax(axis=1)]
    pixels[weight.max(axis=1) == 0] = TRANSPARENT
    return pixels


def _draw_assigned(axes: Axes, repeat: Repeat) -> None:
    times = np.linspace(repeat.start, repeat.stop, THREAD_COLUMNS)  # more points than columns cannot be seen
    for worker in repeat.threads:
        tasks = repeat.load[repeat.node(worker)].at(times)
        axes.step(times - repeat.start, tasks, where="post", label=worker, linewidth=0.9)
    axes.set_ylabel("tasks\nassigned", fontsize=8)
    if len(repeat.threads) <= MOST_WORKERS_NAMED:
        axes.legend(**ABOVE)


def _draw_workers(axes: Axes, repeat: Repeat) -> None:
    stretches = capacity(repeat, 0.0)
    edges = [stretches[0].start, *(stretch.stop for stretch in stretches)]
    axes.stairs([stretch.workers for stretch in stretches], edges, fill=True, color=WAITS)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("workers", fontsize=8)


def _draw_memory(axes: Axes, repeat: Repeat, memory: Sequence[WorkerMemory]) -> None:
    """Draw the memory of each worker's process, and the limit where all have the same."""
    colours = {name: f"C{number % 10}" for number, name in enumerate(repeat.threads)}
    for worker in memory:
        colour = colours.get(worker.worker, WAITS)
        axes.plot(worker.time - repeat.start, worker.process / 1e9, linewidth=0.9, color=colour)
    limits = {float(worker.limit[-1]) for worker in memory if np.isfinite(worker.limit[-1])}
    highest = max(float(worker.process.max()) for worker in memory)
    if len(limits) == 1 and (limit := limits.pop()) < 2 * highest:
        axes.axhline(limit / 1e9, color="#b3261e", linewidth=0.9, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("memory\nGB", fontsize=8)


def _cause_legend(figure: Figure, causes: Iterable[Cause]) -> None:
    ordered = sorted(set(causes), key=lambda cause: (PARTS.index(cause.part), cause.code))
    handles = [Patch(color=cause.colour, label=cause.title) for cause in ordered]
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8, ncols=3)
