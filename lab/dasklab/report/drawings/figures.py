"""The figures of a section: our ratios in colour with samples and intervals, the study's in grey."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.metric import METRICS
from dasklab.plotting import MORE, OURS, STUDY, STYLE
from dasklab.report.words.levels import level_name
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.answers import valid_samples
from dasklab.results.statistics.interval import Interval


def draw(answer: Answer, frame: pd.DataFrame, study: Mapping[str, Any] | None) -> Figure:
    """Draw one metric: a line over a numeric factor, else bars.

    Args:
        answer: the cells of the metric.
        frame: the table of samples.
        study: the figure of the study to compare with, if there is one.
    """
    factors = list(answer.cells[0].factors)
    study = study if answer.scaled else None  # the study is drawn as ratios
    with mpl.rc_context(STYLE):
        numeric = [factor for factor in factors if _is_amount(factor, answer)]
        if numeric and len(factors) <= 2:
            return _lines(answer, frame, study, factor=numeric[-1])
        return _cells(answer, study)


@dataclass(frozen=True)
class FactorLine:
    """Cells that differ in one factor only, in its order; their values are divided by ``base``."""

    cells: Sequence[Cell]
    factor: str
    base: float
    colour: str

    def x(self, cell: Cell) -> float:
        """Return the position of a cell on the horizontal axis."""
        return float(str(cell.factors[self.factor]))


def _is_amount(factor: str, answer: Answer) -> bool:
    """Whether the factor can be an axis. Rates cannot: a rate of 0 is no cap, so they are names of levels."""
    return not factor.endswith("_mbit") and all(
        isinstance(cell.factors[factor], numbers.Real) for cell in answer.cells
    )


def shares(ours: Mapping[str, float], study: Mapping[str, float], xlabel: str) -> Figure:
    """Draw bars of shares in per cent, with the study's below ours where it has any."""
    with mpl.rc_context(STYLE):
        values = {name: Interval(share) for name, share in ours.items()}
        return _bars(values, study, xlabel, lambda value: f"{format_number(value)} %")


def _new(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _lines(answer: Answer, frame: pd.DataFrame, study: Mapping[str, Any] | None, *, factor: str) -> Figure:
    figure, axes = _new(3.6)
    samples = valid_samples(frame, answer.metric)
    for label, line in _lines_of(answer, factor):
        _draw_line(axes, line, label)
        _draw_samples(axes, line, samples[~samples.null])
    if study is not None:
        _study_line(axes, study)
    axes.set_xticks(sorted({float(str(cell.factors[factor])) for cell in answer.cells}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(factor.replace("_", ", "))
    axes.set_ylabel(_axis_label(answer))
    axes.axhline(float(answer.scaled), color="#666660", linewidth=0.8)
    legend(axes)
    return figure


def _lines_of(answer: Answer, factor: str) -> Iterator[tuple[str, FactorLine]]:
    """Yield a line, with its label, for each combination of the other factors' levels."""
    groups: dict[str, list[Cell]] = {}
    for cell in answer.cells:
        others = [level_name(name, level) for name, level in cell.factors.items() if name != factor]
        groups.setdefault(", ".join(others) or "here", []).append(cell)
    for colour, (label, cells) in zip(MORE * 3, groups.items(), strict=False):
        base = answer.baseline(cells[0]).median.value if answer.scaled else 1.0
        line = FactorLine(cells, factor, base, colour)
        yield label, replace(line, cells=sorted(cells, key=line.x))


def _draw_line(axes: Axes, line: FactorLine, label: str) -> None:
    medians = [cell.median.value / line.base for cell in line.cells]
    ends = [
        [
            abs(median - getattr(cell.median, side) / line.base)
            for cell, median in zip(line.cells, medians, strict=True)
        ]
        for side in ("low", "high")
    ]
    style: dict[str, Any] = {"color": line.colour, "marker": "o", "capsize": 3, "linewidth": 1.8, "zorder": 3}
    axes.errorbar([line.x(cell) for cell in line.cells], medians, yerr=ends, label=label, **style)


def _draw_samples(axes: Axes, line: FactorLine, samples: pd.DataFrame) -> None:
    """Draw the raw samples faintly behind the medians."""
    for cell in line.cells:
        values = samples.value[samples.cell == cell.name] / line.base
        axes.plot([line.x(cell)] * len(values), values, ".", color=line.colour, alpha=0.25, markersize=5)


def _study_line(axes: Axes, study: Mapping[str, Any]) -> None:
    points = sorted(study["points"], key=lambda point: float(point["level"]))
    base = _study_base(study)
    xs, values = [p["level"] for p in points], [p["value"] / base for p in points]
    axes.plot(
        xs, values, color=STUDY, marker="s", markersize=5, linewidth=1.4, label="2019 study (mean, range)"
    )
    if all("low" in point for point in points):
        axes.vlines(xs, [p["low"] / base for p in points], [p["high"] / base for p in points], color=STUDY)


def _cells(answer: Answer, study: Mapping[str, Any] | None) -> Figure:
    """Draw bars of a metric's cells, as ratios to the baseline or, where these make no sense, as medians."""
    theirs = {str(p["level"]): p["value"] / _study_base(study) for p in study["points"]} if study else {}
    ours = {_levels(cell): cell.ratio if answer.scaled else cell.median for cell in answer.cells}
    format_value = METRICS[answer.metric].format
    if answer.scaled:
        return _bars(ours, theirs, _axis_label(answer), lambda value: f"\u00d7{format_number(value)}")
    return _bars(ours, theirs, _axis_label(answer), format_value)


def _axis_label(answer: Answer) -> str:
    metric = METRICS[answer.metric]
    return f"{metric.title}, \u00d7 the baseline" if answer.scaled else metric.heading


def _levels(cell: Cell) -> str:
    return ", ".join(level_name(factor, level) for factor, level in cell.factors.items()) or "baseline"


def _bars(
    ours: Mapping[str, Interval],
    study: Mapping[str, float],
    xlabel: str,
    format_value: Callable[[float], str],
) -> Figure:
    """Draw horizontal bars with their values, the study's below ours."""
    height = 0.38 if study else 0.6
    figure, axes = _new(0.8 + (0.62 if study else 0.45) * len(ours))
    for y, (name, value) in enumerate(ours.items()):
        shift = height / 2 if name in study else 0
        _bar(axes, value, format_value(value.value), y=y - shift, height=height, colour=OURS)
        if name in study:
            text = format_value(study[name])
            _bar(axes, Interval(study[name]), text, y=y + shift, height=height, colour=STUDY)
    axes.set_yticks(range(len(ours)), list(ours))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.14)
    axes.set_xlabel(xlabel)
    if study:
        handles = [Patch(color=OURS, label="here"), Patch(color=STUDY, label="2019 study")]
        legend(axes, handles=handles)
    return figure


def _bar(axes: Axes, value: Interval, text: str, *, y: float, height: float, colour: str) -> None:
    axes.barh(y, value.value, height, color=colour)
    end = value.value
    if not math.isnan(value.low):
        axes.plot([value.low, value.high], [y, y], color="#333333", linewidth=1.2, marker="|", markersize=7)
        end = max(end, value.high)
    axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=9)


def legend(axes: Axes, **options: Any) -> None:
    """Draw a legend above the axes, on one line."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=5, borderaxespad=0.2, **options)


def _study_base(study: Mapping[str, Any]) -> float:
    """Return the study's own baseline: its first point, as our baseline is the first level."""
    return float(study["points"][0]["value"])
