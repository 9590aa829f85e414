"""Where the time of a section's cells went, and what each spends more than its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.show.explain import Explained, summarise_cells
from dasklab.breakdown.show.wording import paragraph
from dasklab.comparison import wording
from dasklab.comparison.cells import causes_of_cells
from dasklab.comparison.comparison import TIME
from dasklab.report.drawings.time_parts import TimeTable, time_table
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.answer import Answer

Names = Mapping[str, str]  # of cells, in words


@dataclass(frozen=True)
class TimeScreen:
    """A bar for each cell, and sentences. Without records there is neither."""

    table: TimeTable | None
    notes: list[str]


def time_screen(
    run: Run, explained: Mapping[Trial, Explained], answers: Mapping[str, Answer], labels: Names
) -> TimeScreen:
    """Sum up the time breakdowns of a run's trials by cell.

    Args:
        labels: the cells' names in words, in the order of the bars.
    """
    summaries = _ordered(summarise_cells(run, explained.items()), labels)
    table = time_table({labels.get(name, name): summary for name, summary in summaries.items()})
    return TimeScreen(table, _notes(summaries, explained, answers.get(TIME), labels))


def _ordered(summaries: Mapping[str, Summary], labels: Names) -> dict[str, Summary]:
    """Order cells as the picture of the first screen does; the null trial comes last."""
    order = {name: index for index, name in enumerate(labels)}
    return {name: summaries[name] for name in sorted(summaries, key=lambda name: order.get(name, len(order)))}


def _notes(
    summaries: Mapping[str, Summary], explained: Mapping[Trial, Explained], time: Answer | None, names: Names
) -> list[str]:
    """Describe what each cell spends more than its baseline; of a single cell, where its time went."""
    if not summaries:
        return []
    if len(summaries) == 1:
        return [paragraph(*summaries.values())]
    causes = causes_of_cells(summaries, explained.items(), time)
    return wording.sentences({names.get(name, name): causes[name] for name in causes})
