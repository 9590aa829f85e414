"""Pictures of what a recorded block would take with other settings."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from dasklab.plotting import MORE, OURS, STYLE, label_figure
from dasklab.predict.prediction import RunSummary


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
