"""The time left of a run: it begins with the plan, and does not say 0 s while a trial takes longer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from dasklab.console.trials.progress import TimeLeft, TrialDisplay
from rich.progress import Progress


@pytest.mark.parametrize(("left_s", "text"), [(75.4, "about 1 min 15 s left"), (-20, "longer than planned")])
def test_time_left_is_never_zero(left_s: float, text: str) -> None:
    task = SimpleNamespace(fields={"until": time.monotonic() + left_s})
    assert TimeLeft().render(task).plain == text


def test_time_left_is_that_of_the_plan_before_the_first_trial() -> None:
    progress = Progress(disable=True)
    TrialDisplay(SimpleNamespace(trials=[1, 2], pending=lambda: [1, 2], remaining_s=lambda: 600.0), progress)
    assert progress.tasks[0].fields["until"] - time.monotonic() > 590
