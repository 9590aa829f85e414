"""Where the time of a section's cells went, and what each spends more than its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.wording import paragraph
from dasklab.comparison import wording
from dasklab.comparison.cells import RecordedCells, causes_of_cells
from dasklab.comparison.comparison import TIME
from dasklab.report.drawings.time_parts import TimeTable, time_table
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.answer import Answer

Names = Mapping[str, str]  # of cells, in words


@dataclass(frozen=True)
class TimeScreen:
    """A bar for each cell, and sentences. Without records there is neither.

    Attributes:
        recorded: what both are made of, for a comparison with another run.
    """

    table: TimeTable | None
    notes: list[str]
    recorded: RecordedCells


def time_screen(
    run: Run, explained: Mapping[Trial, Explained], answers: Mapping[str, Answer], labels: Names
) -> TimeScreen:
    """Sum up the time breakdowns of a run's trials by cell.

    Args:
        labels: the cells' names in words, in the order of the bars.
    """
    recorded = RecordedCells.of(run, explained.items())
    summaries = _ordered(recorded.summaries, labels)
    table = time_table({labels.get(name, name): summary for name, summary in summaries.items()})
    notes = _notes(replace(recorded, summaries=summaries), answers.get(TIME), labels)
    return TimeScreen(table, notes, recorded)


def _ordered(summaries: Mapping[str, Summary], labels: Names) -> dict[str, Summary]:
    """Order cells as the picture of the first screen does; the null trial comes last."""
    order = {name: index for index, name in enumerate(labels)}
    return {name: summaries[name] for name in sorted(summaries, key=lambda name: order.get(name, len(order)))}


def _notes(recorded: RecordedCells, time: Answer | None, names: Names) -> list[str]:
    """Describe what each cell spends more than its baseline; of a single cell, where its time went."""
    if len(recorded.summaries) < 2:
        return [*map(paragraph, recorded.summaries.values())]
    causes = causes_of_cells(recorded, time)
    return wording.sentences({names.get(name, name): causes[name] for name in causes})
