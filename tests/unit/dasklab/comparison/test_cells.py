"""Causes of the cells of one run: only differences that are shown have some, and the null trial has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.breakdown.answers.summary import summarise
from dasklab.breakdown.model.causes import COMPUTING
from dasklab.breakdown.show.explain import Explained
from dasklab.comparison.causes import PathSeconds
from dasklab.comparison.cells import PathRow, RecordedCells, causes_of_cells, difference
from dasklab.model.experiments.trial import NULL_TRIAL
from dasklab.results.run import Trial

from tests.unit.dasklab.breakdown.timelines import make_repeat, task


class ValidTrial(Trial):
    """A valid trial of a cell in a block."""

    def __init__(self, cell: str, block: int, null: bool = False) -> None:
        super().__init__(Path(f"{block}-{cell}-{null}"))
        title = NULL_TRIAL if null else cell
        fields = {"cell": cell, "block": block, "cell_title": title}
        self.__dict__["requested"] = type("Requested", (), fields)

    @property
    def is_valid(self) -> bool:
        """It is."""
        return True


def explained(trial: Trial, length: float) -> Explained:
    row = task("spin-1", "worker-1", 1, 0.0, length, decided=0.0, handled=length)
    repeat = make_repeat([row], stop=length, threads={"worker-1": 1})
    return Explained(trial, False, {}, [repeat], {}, None)


def run(slow: float, *, blocks: int = 3) -> list[tuple[Trial, Explained]]:
    trials = [(ValidTrial("a", n), 1.0 + 0.01 * n) for n in range(blocks)]
    trials += [(ValidTrial("a", n, null=True), 1.02 - 0.01 * n) for n in range(blocks)]
    trials += [(ValidTrial("b", n), slow + 0.01 * (n % 2)) for n in range(blocks)]
    return [(trial, explained(trial, length)) for trial, length in trials]


@pytest.mark.parametrize(("slow", "is_shown"), [(2.0, True), (1.01, False)])
def test_only_shown_differences_have_causes(slow: float, is_shown: bool) -> None:
    trials = run(slow)
    titles = dict.fromkeys(trial.requested.cell_title for trial, _ in trials)
    summaries = {
        name: summarise([r for t, e in trials if t.requested.cell_title == name for r in e.timed])
        for name in titles
    }
    rows = [PathRow(t.requested.cell, t.requested.block, PathSeconds.of(e.summary)) for t, e in trials]
    causes = causes_of_cells(RecordedCells(summaries, rows), None)
    assert [change.bottleneck for change in causes["b"].shown] == [COMPUTING] * is_shown
    assert not causes[NULL_TRIAL].shown and causes[NULL_TRIAL].is_time_shown is False
    assert difference(rows, "b", "a", COMPUTING).value == pytest.approx(slow - 1, abs=0.02)


def test_one_block_says_nothing_about_chance() -> None:
    rows = [PathRow(cell, 0, PathSeconds(1.0, {COMPUTING: 1.0})) for cell in ("a", "b")]
    assert not difference(rows, "b", "a", COMPUTING).has_error
