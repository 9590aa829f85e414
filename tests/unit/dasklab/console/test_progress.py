"""The line of a running trial fits, and its time left begins with the plan and is never 0 s."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from dasklab.console.trials import progress
from dasklab.console.trials.progress import TimeLeft, TrialDisplay
from rich.console import Console
from rich.progress import Progress


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(75.4, "about 1 min 15 s left"), (1565, "about 26 min left"), (-20, "longer than planned")],
)
def test_time_left_is_never_zero(left_s: float, text: str) -> None:
    task = SimpleNamespace(fields={"until": time.monotonic() + left_s})
    assert TimeLeft().render(task).plain == text


def test_time_left_is_that_of_the_plan_before_the_first_trial() -> None:
    shown = Progress(disable=True)
    TrialDisplay(SimpleNamespace(trials=[1, 2], pending=lambda: [1, 2], remaining_s=lambda: 600.0), shown)
    assert shown.tasks[0].fields["until"] - time.monotonic() > 590


@pytest.mark.parametrize("trial", ["2-05-nic=VirtIO-10G", "12-108-rate_mbit=1000,delay_ms=100,loss_pct=0.1"])
def test_line_fits_80_columns(trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "current_phase", lambda folder: "probe-throughput-before")
    line = Progress(*progress.columns(), console=Console(width=80, file=StringIO()))
    until = time.monotonic() + 1565
    line.add_task(trial, total=300, completed=12, until=until, directory=Path("x"))
    with line.console.capture() as captured:
        line.console.print(line.get_renderable())
    [text] = captured.get().splitlines()
    assert trial in text and " pro" in text and text.rstrip().endswith("about 26 min left")
