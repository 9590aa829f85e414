"""Picture of time breakdowns: threads over time, coloured by cause.

Causes of one part of the time are shades of its colour, which the report has as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.arrays import expand
from dasklab.breakdown.model.causes import CAUSES, PARTS, QUEUE, Cause
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.wording import percent
from dasklab.plotting import STYLE

THREAD_COLUMNS = 1200  # each shows the cause of most of its time


def threads(repeats: Mapping[str, Repeat]) -> Figure:
    """Draw repeats on one scale: a row per thread, and below how many tasks each worker had."""
    breakdowns = {name: break_down(repeat) for name, repeat in repeats.items()}
    heights = [h for repeat in repeats.values() for h in (max(2.0, 0.4 * len(repeat.thread_rows[1])), 1.0)]
    with mpl.rc_context(STYLE):
        figure = Figure((10, 1.2 + 0.75 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        for index, (name, repeat) in enumerate(repeats.items()):
            _draw_threads(axes[2 * index], name, repeat, breakdowns[name])
            _draw_assigned(axes[2 * index + 1], repeat)
        axes[0].set_xlim(0, max(repeat.makespan for repeat in repeats.values()))
        axes[-1].set_xlabel("seconds since the start")
        codes = {code for intervals in breakdowns.values() for code in np.unique(intervals.cause).tolist()}
        _legend(figure, (CAUSES[code] for code in codes))
    return figure


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
    """Return the colour of each pixel: that of the cause with most of its time."""
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
    colours = np.array([to_rgb(cause.colour) for cause in CAUSES], np.float64)
    return np.asarray(colours[weight.argmax(axis=1)], np.float64)


def _draw_assigned(axes: Axes, repeat: Repeat) -> None:
    times = np.linspace(repeat.start, repeat.stop, THREAD_COLUMNS)  # more points than columns cannot be seen
    for worker in repeat.threads:
        tasks = repeat.load[repeat.node(worker)].at(times)
        axes.step(times - repeat.start, tasks, where="post", label=worker, linewidth=0.9)
    axes.set_ylabel("tasks\nassigned", fontsize=8)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper right")


def _legend(figure: Figure, causes: Iterable[Cause]) -> None:
    ordered = sorted(set(causes), key=lambda cause: (PARTS.index(cause.part), cause.code))
    handles = [Patch(color=cause.colour, label=cause.title) for cause in ordered]
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8, ncols=3)
