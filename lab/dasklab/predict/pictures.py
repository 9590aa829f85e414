"""The picture of sensitivities: the effect of each resource, and the time over the rate of all links."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dasklab.model.forms.number_format import format_number
from dasklab.plotting import MORE, OURS, STYLE, label_figure
from dasklab.predict.sensitivity import NEGLIGIBLE, Sensitivities
from dasklab.results.statistics.interval import Interval

GREY = "#666660"


def draw(sensitivities: Sensitivities) -> Figure:
    """Draw effects and rates side by side."""
    with mpl.rc_context(STYLE):
        figure = Figure((11, 4), layout="constrained")
        left, *others = figure.subplots(1, 2 if sensitivities.rates else 1, squeeze=False)[0]
        _effects(left, sensitivities)
        left.set_title("what the time of a repeat is sensitive to", loc="left")  # the mark is on the right
        for right in others:
            _rates(right, sensitivities)
            right.set_title("faster links", loc="left")
        label_figure(figure, "simulated, unless marked otherwise" if sensitivities.measured else "simulated")
    return figure


def _effects(axes: Axes, sensitivities: Sensitivities) -> None:
    effects = [effect for effect in sensitivities.effects if effect.relative]
    for place, effect in enumerate(effects):
        gain = effect.gain_pct
        axes.barh(place, gain.value, 0.6, color=OURS if effect.simulated else MORE[1])
        if not math.isnan(gain.low):
            axes.plot([gain.low, gain.high], [place, place], color="#333333", linewidth=1.2, marker="|")
    names = [
        effect.name if effect.simulated else f"{effect.name},\nmeasured {effect.now}" for effect in effects
    ]
    axes.set_yticks(range(len(effects)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("% less time for 1 % more of it")


def _rates(axes: Axes, sensitivities: Sensitivities) -> None:
    _points(axes, sensitivities.rates, OURS, "simulated", "-")
    if sensitivities.measured:
        _points(axes, sensitivities.measured, MORE[1], "measured", "")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xticks(
        list(sensitivities.rates), [format_number(rate) for rate in sensitivities.rates], rotation=30
    )
    axes.minorticks_off()
    axes.axvline(sensitivities.now_mbit, color=GREY, linewidth=0.8, linestyle=":", label="this trial")
    if sensitivities.knee_mbit:
        label = f"faster saves less than {NEGLIGIBLE:.0%}"
        axes.axvspan(
            sensitivities.knee_mbit, max(sensitivities.rates), color="#e6e6e0", zorder=0, label=label
        )
    axes.set_xlabel("rate of all links, Mbit/s")
    axes.set_ylabel("duration of a repeat, s")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _points(axes: Axes, intervals: Mapping[float, Interval], colour: str, label: str, line: str) -> None:
    values = [interval.value for interval in intervals.values()]
    below = [_distance(interval, interval.low) for interval in intervals.values()]
    above = [_distance(interval, interval.high) for interval in intervals.values()]
    axes.errorbar(
        list(intervals),
        values,
        yerr=[below, above],
        color=colour,
        marker="o",
        capsize=3,
        linestyle=line,
        label=label,
    )


def _distance(interval: Interval, end: float) -> float:
    return 0.0 if math.isnan(interval.low) else abs(interval.value - end)
