"""Pictures of accounts: threads over time in the colours of the causes, and the causes of several trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dasklab.breakdown.causes import COLOURS, QUEUE, WORDS
from dasklab.breakdown.partition import Thread, account
from dasklab.breakdown.run import Run
from dasklab.breakdown.summary import Summary
from dasklab.plotting import STYLE

COLUMNS = 1200  # of the picture of threads: each shows the cause that took most of its time


def threads(runs: Mapping[str, Run]) -> Figure:
    """Runs on one scale: a row per thread; below, how many tasks each worker was given and had not ended."""
    found = {name: account(run) for name, run in runs.items()}
    rows = [row for accounted in found.values() for row in (max(2.0, 0.4 * len(accounted)), 1.0)]
    with mpl.rc_context(STYLE):
        figure = Figure((10, 1.2 + 0.75 * sum(rows)), layout="constrained")
        axes = figure.subplots(len(rows), 1, sharex=True, height_ratios=rows)
        for index, (name, run) in enumerate(runs.items()):
            _draw_threads(axes[2 * index], name, run, found[name])
            _draw_given(axes[2 * index + 1], run)
        axes[0].set_xlim(0, max(run.makespan for run in runs.values()))
        axes[-1].set_xlabel("seconds since the run's start")
        _legend(figure, {part.cause for some in found.values() for thread in some for part in thread.parts})
    return figure


def _draw_threads(axes: Axes, name: str, run: Run, found: Sequence[Thread]) -> None:
    idle = sum(part.seconds for thread in found for part in thread.parts if part.cause == QUEUE)
    share = idle / (len(found) * run.makespan)
    image = np.array([_row(thread, run) for thread in found])
    ends = (0, run.makespan, len(found) - 0.5, -0.5)
    axes.imshow(image, aspect="auto", extent=ends, interpolation="nearest")
    axes.set_yticks(range(len(found)), [thread.worker for thread in found])
    axes.grid(visible=False)
    said = f"{name}: {run.makespan:.2f} s; idle while others queue {share:.1%} of the threads' time"
    axes.set_title(said, loc="left", fontsize=10)


def _draw_given(axes: Axes, run: Run) -> None:
    for worker in run.threads:
        times, given = _given(run, worker)
        axes.step(times, given, where="post", label=worker, linewidth=0.9)
    axes.set_ylabel("tasks\ngiven", fontsize=8)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper right")


def levels(summaries: Mapping[str, Summary]) -> Figure:
    """Several trials on one scale: a bar each, as long as its makespan, made of its causes."""
    with mpl.rc_context(STYLE):
        figure = Figure((10, 1.6 + 0.4 * len(summaries)), layout="constrained")
        axes = figure.subplots()
        for row, summary in enumerate(summaries.values()):
            left = 0.0
            for cause in WORDS:
                seconds = summary.by_cause.get(cause, 0.0)
                axes.barh(row, seconds, left=left, color=COLOURS[cause], height=0.7)
                left += seconds
        axes.set_yticks(range(len(summaries)), list(summaries))
        axes.invert_yaxis()
        axes.set_xlabel("seconds of a thread, mean of all threads and runs")
        _legend(figure, {cause for summary in summaries.values() for cause in summary.by_cause})
    return figure


def _row(thread: Thread, run: Run) -> Sequence[tuple[float, float, float]]:
    causes = list(WORDS)
    weight = np.zeros((len(causes), COLUMNS))
    scale = COLUMNS / run.makespan
    for part in thread.parts:
        first, last = (part.start - run.start) * scale, (part.stop - run.start) * scale
        low, high = min(int(first), COLUMNS - 1), min(int(last), COLUMNS - 1)
        row = weight[causes.index(part.cause)]
        if low == high:
            row[low] += last - first
        else:
            row[low] += low + 1 - first
            row[low + 1 : high] += 1
            row[high] += last - high
    return [to_rgb(COLOURS[causes[index]]) for index in weight.argmax(axis=0)]


def _given(run: Run, worker: str) -> tuple[list[float], list[int]]:
    tasks = [task for task in run.tasks if task.worker == worker]
    steps = sorted([(task.given, 1) for task in tasks] + [(task.stop, -1) for task in tasks])
    times = [0.0, *(time - run.start for time, _ in steps)]
    return times, np.cumsum([0, *(change for _, change in steps)]).tolist()


def _legend(figure: Figure, causes: set[str]) -> None:
    handles = [Patch(color=COLOURS[cause], label=words) for cause, words in WORDS.items() if cause in causes]
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8, ncols=3)
