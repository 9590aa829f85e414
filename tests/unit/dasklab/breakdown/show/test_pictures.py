"""Pictures over time show what the sentence says, on light and dark pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dasklab.breakdown.answers.facts.memory import WorkerMemory
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.repeat import Lines
from dasklab.breakdown.prepare.operations import Operation
from dasklab.breakdown.show import pictures
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.breakdown.show.notebook import Explanation
from dasklab.results.run import Trial
from matplotlib.figure import Figure

RECORDS = Path(__file__).parents[4] / "data" / "records"


def drawn(explained: Explained) -> Figure:
    repeat = explained.median_repeat
    return pictures.over_time("run", repeat, explained.operations, explained.facts.memory)


def labels(figure: Figure) -> list[str]:
    """What names the rows of a picture, from the top."""
    return [axes.get_ylabel() or axes.get_yticklabels()[0].get_text() for axes in figure.axes]


@pytest.fixture(scope="module")
def noworkers() -> Explained:
    return explain(Trial(RECORDS / "noworkers"))


def test_rows_share_one_axis(noworkers: Explained) -> None:
    repeat = noworkers.median_repeat
    ends = np.array([repeat.start]), np.array([repeat.stop])
    no = np.array([False])
    line = Lines(*ends, ~no, no, no, np.array([0]), [("In[7]", 2, "gather()")])
    sizes = [np.full(3, nbytes) for nbytes in (3e8, 1e8, 0.0, 4e8)]
    memory = WorkerMemory("worker-0", np.linspace(repeat.start, repeat.stop, 3), *sizes)
    figure = pictures.over_time("run", replace(repeat, lines=line), noworkers.operations, [memory])
    assert labels(figure) == [
        "your\nprogram",
        "operations",
        "worker-0",
        "tasks\nassigned",
        "workers",
        "memory\nGB",
    ]
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, repeat.makespan)}
    assert [text.get_text() for text in figure.axes[0].texts] == ["In [7], line 2: gather()"]


def test_no_cause_is_drawn_before_a_worker_came(noworkers: Explained) -> None:
    repeat = noworkers.median_repeat
    pixels = pictures._pixels(repeat, break_down(repeat), 1)
    joined = (repeat.joined["worker-0"] - repeat.start) / repeat.makespan * pictures.THREAD_COLUMNS
    opaque = pixels[0, :, 3] > 0
    assert not opaque[: int(joined)].any()
    assert opaque[int(joined) + 1 :].mean() > 0.95


def test_workers_row_is_left_out_where_their_number_never_changed() -> None:
    assert "workers" not in labels(drawn(explain(Trial(RECORDS / "retries"))))


def test_overlapping_operations_are_drawn_below_each_other() -> None:
    spans = [(0.0, 2.0), (1.0, 3.0), (2.5, 4.0), (2.6, 5.0), (2.7, 5.0), (2.8, 5.0), (2.9, 5.0)]
    operations = [Operation(number, "", ("", 0, ""), *span, 1) for number, span in enumerate(spans)]
    rows = pictures._rows_without_overlap(operations)
    assert rows == [0, 1, 0, 2, 3, 3, 3]  # the last row takes what fits nowhere


def test_picture_of_a_notebook_takes_the_colours_of_its_page(noworkers: Explained) -> None:
    page = Explanation(noworkers)._repr_html_()
    svg = page[page.index("<svg") :]
    assert "currentColor" in svg
    assert "#000000" not in svg and "background:white" not in page
