"""The card's picture: what 1 % more of each thing brings, and the time over the links' rate with its knee."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dasklab.model.number_format import format_number
from dasklab.plotting import MORE, OURS, STYLE, mark
from dasklab.predict.sensitivity import LITTLE, Card
from dasklab.results.statistics.interval import Interval

GREY = "#666660"


def draw(card: Card) -> Figure:
    """Both, side by side."""
    with mpl.rc_context(STYLE):
        figure = Figure((11, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _lines(left, card)
        _rates(right, card)
        left.set_title("what its time hangs on", loc="left")  # right is the mark
        right.set_title("faster links", loc="left")
        mark(figure, "simulated" if not card.measured else "simulated, where not said otherwise")
    return figure


def _lines(axes: Axes, card: Card) -> None:
    told = [line for line in card.lines if line.relative]
    for place, line in enumerate(told):
        found = line.gain_pct
        axes.barh(place, found.value, 0.6, color=OURS if line.simulated else MORE[1])
        if not math.isnan(found.low):
            axes.plot([found.low, found.high], [place, place], color="#333333", linewidth=1.2, marker="|")
    names = [line.name if line.simulated else f"{line.name},\nmeasured {line.now}" for line in told]
    axes.set_yticks(range(len(told)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlabel("1 % more of it: % less time")


def _rates(axes: Axes, card: Card) -> None:
    _points(axes, card.rates, OURS, "simulated", "-")
    if card.measured:
        _points(axes, card.measured, MORE[1], "measured", "")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xticks(list(card.rates), [format_number(rate) for rate in card.rates], rotation=30)
    axes.minorticks_off()
    axes.axvline(card.now_mbit, color=GREY, linewidth=0.8, linestyle=":", label="as it is")
    if card.knee_mbit:
        label = f"faster brings less than {LITTLE:.0%}"
        axes.axvspan(card.knee_mbit, max(card.rates), color="#e6e6e0", zorder=0, label=label)
    axes.set_xlabel("rate of all links, Mbit/s")
    axes.set_ylabel("a run, s")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _points(axes: Axes, found: Mapping[float, Interval], colour: str, label: str, line: str) -> None:
    values = [each.value for each in found.values()]
    ends = [
        [
            0.0 if math.isnan(each.low) else abs(each.value - end)
            for each, end in zip(found.values(), side, strict=True)
        ]
        for side in ([each.low for each in found.values()], [each.high for each in found.values()])
    ]
    axes.errorbar(
        list(found), values, yerr=ends, color=colour, marker="o", capsize=3, linestyle=line, label=label
    )
