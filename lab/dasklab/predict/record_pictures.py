"""Pictures of what a recorded block would take with other settings, and what sizes of a cluster cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dasklab.plotting import MORE, OURS, STYLE, label_figure
from dasklab.predict.prediction import RunSummary

GREY = "#9a9a94"


def durations(rows: Sequence[RunSummary], wide: Sequence[RunSummary]) -> Figure:
    """Draw a bar for each row, with the interval that includes the error found in validation."""
    with mpl.rc_context(STYLE):
        figure = Figure((8, 0.8 + 0.5 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for place, (row, interval) in enumerate(zip(rows, wide, strict=True)):
            axes.barh(place, row.mean_s, 0.6, color=OURS if row.simulated else MORE[1])
            if row.simulated:
                ends = [interval.low_s, interval.high_s]
                axes.plot(ends, [place, place], color="#333333", linewidth=1.2, marker="|")
        axes.set_yticks(range(len(rows)), [row.what for row in rows])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(left=0)
        axes.set_xlabel("duration of the recorded block, s")
        label_figure(figure, "simulated, unless measured")
    return figure


def sizes(
    what: str, seconds: Mapping[str, RunSummary], thread_s: Mapping[str, Mapping[str, float]], floor_s: float
) -> Figure:
    """Draw the time and the thread time of sizes of a cluster, side by side.

    Args:
        what: is scaled.
        seconds: by size, with intervals that include the error found in validation.
        thread_s: by size what thread time is used for, in the same order for each.
        floor_s: the time with workers and links without limit.
    """
    with mpl.rc_context(STYLE):
        figure = Figure((11, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _times(left, [*seconds.values()], floor_s)
        _thread_times(right, [*thread_s.values()])
        for axes in (left, right):
            axes.set_xticks(range(len(seconds)), [*seconds])
            axes.set_ylim(bottom=0)
            axes.set_xlabel(what)
        label_figure(figure, "simulated")
    return figure


def _times(axes: Axes, seconds: Sequence[RunSummary], floor_s: float) -> None:
    means = [row.mean_s for row in seconds]
    reaches = [[row.mean_s - row.low_s for row in seconds], [row.high_s - row.mean_s for row in seconds]]
    axes.errorbar(range(len(means)), means, reaches, color=OURS, ecolor="#333333", marker="o")
    axes.axhline(floor_s, color=MORE[1], linewidth=1, linestyle=":")
    axes.annotate("without limit", (0, floor_s), (0, 3), textcoords="offset points", color=MORE[1])
    axes.set_ylabel("duration of the block, s")


def _thread_times(axes: Axes, thread_s: Sequence[Mapping[str, float]]) -> None:
    for place, parts in enumerate(thread_s):
        bottom = 0.0
        for (name, part_s), colour in zip(parts.items(), (*MORE, GREY), strict=True):
            axes.bar(place, part_s, 0.6, bottom, color=colour, label=None if place else name)
            bottom += part_s
    axes.set_ylabel("thread time paid, s")
    axes.legend(frameon=False, fontsize="small")
