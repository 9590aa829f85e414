"""Two runs of one experiment side by side: each cell then and now, and whether chance explains the change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dasklab.comparison.comparison import CellChange
from dasklab.comparison.runs import compare_runs
from dasklab.comparison.wording import sentences
from dasklab.errors import LabError
from dasklab.model.settings.metric import METRICS
from dasklab.notices import warn
from dasklab.report.drawings.time_parts import TimeRow
from dasklab.report.pages.section import Section
from dasklab.report.words.levels import cell_label
from dasklab.results.statistics.interval import format_interval
from dasklab.terminal import counted

NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    title: str
    anchor: str


@dataclass(frozen=True)
class BarPair:
    """A cell of the main metric in both runs; widths are in per cent of the longest bar."""

    label: str
    old: str
    new: str
    old_pct: float
    new_pct: float
    change: str
    is_shown: bool


@dataclass(frozen=True)
class ChangeRow:
    """A cell of one metric in both runs, as texts."""

    metric: str
    label: str
    cell: str
    old: str
    new: str
    ratio: str
    verdict: str


@dataclass(frozen=True)
class TimePair:
    """Where the time of a cell went in the two runs; widths are relative to the longest bar of both runs."""

    cell: str
    old: TimeRow
    new: TimeRow
    old_pct: float
    new_pct: float


@dataclass(frozen=True)
class SideBySide:
    """The older and the newer run of an experiment. ``unlike`` says why they are hardly comparable."""

    title: str
    old: Side
    new: Side
    unlike: list[str]
    sentence: str
    metric: str
    bars: list[BarPair]
    times: list[TimePair]
    causes: list[str]
    rows: list[ChangeRow]


def side_by_side(sections: Sequence[Section]) -> list[SideBySide]:
    """Compare the first and the last run of each experiment that has several."""
    runs: dict[str, list[Section]] = {}
    for section in sections:
        runs.setdefault(section.document.name, []).append(section)
    return [pair for group in runs.values() if len(group) > 1 for pair in _compared(group[0], group[-1])]


def _compared(old: Section, new: Section) -> Iterator[SideBySide]:
    try:
        comparison = compare_runs(
            old.run, new.run, anyway=True, recorded=(old.time.recorded, new.time.recorded)
        )
    except LabError as error:
        warn(f"{error.message}; the two runs are not put side by side")
        return
    changes = _ordered(comparison.changes, new)
    labels = {cell.name: _label(new, cell.name) for answer in new.answers.values() for cell in answer.cells}
    main = next(
        (metric for metric in new.answers if any(change.metric == metric for change in changes)), None
    )
    of_main = [change for change in changes if change.metric == main]
    yield SideBySide(
        title=new.document.experiment["title"],
        old=_side(old),
        new=_side(new),
        unlike=[*comparison.unlike],
        sentence=_sentence(of_main, labels) if main else "The two runs have no metric in common.",
        metric=METRICS[main].title if main else "",
        bars=_bars(of_main, labels),
        times=list(_times(old, new)),
        causes=sentences({labels.get(cell, cell): causes for cell, causes in comparison.causes.items()}),
        rows=[_row(change, labels) for change in changes],
    )


def _side(section: Section) -> Side:
    return Side(f"{section.when}{section.mark}", section.anchor)


def _label(section: Section, name: str) -> str:
    for answer in section.answers.values():
        for cell in answer.cells:
            if cell.name == name:
                return cell_label(answer, cell, section.words)
    return name


def _ordered(changes: Sequence[CellChange], section: Section) -> list[CellChange]:
    """Sort by metric and cell as the section does."""
    metrics = list(section.answers)
    cells = [cell.name for answer in list(section.answers.values())[:1] for cell in answer.cells]

    def place(change: CellChange) -> tuple[int, int]:
        metric = metrics.index(change.metric) if change.metric in metrics else len(metrics)
        return metric, cells.index(change.cell) if change.cell in cells else len(cells)

    return sorted(changes, key=place)


def _sentence(changes: Sequence[CellChange], labels: Mapping[str, str]) -> str:
    """Return what differs most in the main metric."""
    metric = METRICS[changes[0].metric]
    differ = sorted((change for change in changes if change.is_shown), key=_size, reverse=True)
    cells = counted(len(changes), "setting")
    if not differ:
        if all(math.isnan(change.ratio.low) for change in changes):
            return f"No difference shown: too few trials to tell whether the {metric.title} changed."
        return f"No difference shown: in {cells} the {metric.title} differs by no more than the noise."
    most = differ[0]
    return (
        f"The {metric.title} differs in {len(differ)} of {cells}, most with"
        f" {labels.get(most.cell, most.cell)}: {metric.quantity(most.old)} then,"
        f" {metric.quantity(most.new)} now, x {format_interval(most.ratio)}."
    )


def _size(change: CellChange) -> float:
    return abs(change.new - change.old)


def _bars(changes: Sequence[CellChange], labels: Mapping[str, str]) -> list[BarPair]:
    longest = max((max(change.old, change.new) for change in changes), default=0.0)
    if longest <= 0:
        return []
    quantity = METRICS[changes[0].metric].quantity
    return [
        BarPair(
            label=labels.get(change.cell, change.cell),
            old=quantity(change.old),
            new=quantity(change.new),
            old_pct=100 * change.old / longest,
            new_pct=100 * change.new / longest,
            change=f"x {format_interval(change.ratio)}" if change.is_shown else NO_DIFFERENCE,
            is_shown=change.is_shown,
        )
        for change in changes
    ]


def _times(old: Section, new: Section) -> Iterator[TimePair]:
    if not (old.time.table and new.time.table):
        return
    before = {row.cell: row for row in old.time.table.rows}
    longest = max(row.makespan_s for row in (*old.time.table.rows, *new.time.table.rows))
    for row in new.time.table.rows:
        if earlier := before.get(row.cell):
            ends = 100 * earlier.makespan_s / longest, 100 * row.makespan_s / longest
            yield TimePair(row.cell, earlier, row, *ends)


def _row(change: CellChange, labels: Mapping[str, str]) -> ChangeRow:
    metric = METRICS[change.metric]
    return ChangeRow(
        metric=metric.title,
        label=labels.get(change.cell, change.cell),
        cell=change.cell,
        old=metric.quantity(change.old),
        new=metric.quantity(change.new),
        ratio=format_interval(change.ratio),
        verdict="differs" if change.is_shown else NO_DIFFERENCE,
    )
