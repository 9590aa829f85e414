"""Where the time went: a bar per cell, divided into five parts, and the causes inside a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import CAUSES, PARTS, Cause, Part
from dasklab.breakdown.show.wording import decimals, percent
from dasklab.model.forms.number_format import format_number

LEAST_LABELLED_PCT = 0.05


@dataclass(frozen=True)
class Segment:
    """A part of one cell's bar; ``width_pct`` is relative to the longest bar."""

    part: Part
    seconds: float
    share: str
    width_pct: float

    @property
    def text(self) -> str:
        return f"{self.part.title} {format_number(self.seconds)} s, {self.share}"


@dataclass(frozen=True)
class TimeRow:
    """One cell: its bar, and the sum, which is the time that a repeat took."""

    cell: str
    makespan_s: float
    segments: list[Segment]


@dataclass(frozen=True)
class CauseRow:
    """One cause with its seconds in each cell, as texts."""

    part: Part
    cause: Cause
    seconds: list[str]


@dataclass(frozen=True)
class TimeTable:
    """All cells by part, and by cause as details."""

    rows: list[TimeRow]
    causes: list[CauseRow]

    @property
    def parts(self) -> list[Part]:
        """The parts that take any time, for the legend."""
        names = {segment.part.name for row in self.rows for segment in row.segments}
        return [part for part in PARTS if part.name in names]


def time_table(summaries: Mapping[str, Summary]) -> TimeTable | None:
    """Return the time breakdown of cells, by the cells' names; None if there are none."""
    longest_s = max((summary.makespan_s for summary in summaries.values()), default=0.0)
    if not longest_s:
        return None
    rows = [
        TimeRow(name, summary.makespan_s, _segments(summary, longest_s))
        for name, summary in summaries.items()
    ]
    return TimeTable(rows, _causes(summaries))


def _segments(summary: Summary, longest_s: float) -> list[Segment]:
    segments = []
    for part in PARTS:
        seconds = sum(s for cause, s in summary.by_cause.items() if cause.part is part)
        share, width_pct = seconds / summary.makespan_s, 100 * seconds / longest_s
        if width_pct > LEAST_LABELLED_PCT:
            segments.append(Segment(part, seconds, percent(share), width_pct))
    return segments


def _causes(summaries: Mapping[str, Summary]) -> list[CauseRow]:
    rows, digits = [], decimals(*(summary.makespan_s for summary in summaries.values()))
    ordered = sorted(CAUSES, key=lambda cause: (PARTS.index(cause.part), cause.code))
    for cause in ordered:
        seconds = [summary.by_cause.get(cause, 0.0) for summary in summaries.values()]
        if max(seconds) >= 0.5 * 10**-digits:
            rows.append(CauseRow(cause.part, cause, [f"{value:.{digits}f}" for value in seconds]))
    return rows
