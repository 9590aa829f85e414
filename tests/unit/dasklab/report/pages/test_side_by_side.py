"""Two runs of one experiment stand side by side, with what differs by more than chance."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab import report
from dasklab.model.experiments.experiment import Experiment
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json
from tests.unit.dasklab.stored_run import previous_run

Measure = Callable[[float], Path]


@pytest.fixture
def run_with(tmp_path: Path, sweep: Experiment) -> Measure:
    """A function that measures the sweep, in which each ms of delay adds some seconds."""
    folders = iter(("first", "second", "third"))

    def measure(slope: float) -> Path:
        def seconds(trial: Json) -> float:
            return 4.0 + slope * float(trial["factors"]["delay_ms"])

        run = driver.start(tmp_path / next(folders), "delay_scheduler", sweep, SETUP, quick=False)
        driver.execute(run, FakeLab(seconds), lambda trial, state: None)
        return run.stored.folder

    return measure


@pytest.mark.usefixtures("undrawn")
def test_sentence_names_the_cell_that_changed_most(run_with: Measure, tmp_path: Path) -> None:
    text = report.write([Run(run_with(0.02)), Run(run_with(0.04))], tmp_path / "report").read_text()
    pattern = (
        r"The time to compute differs in 2 of 3 settings, most with 200 ms of delay on the"
        r" scheduler&#39;s link: (7\.9|8\.0)\d s then, (11\.[89]|12\.[01]) s now,"
        r" x 1\.[45]\d? \(1\.\d+ to 1\.\d+\)\."
    )
    assert re.search(pattern, text), re.search(r"The time to compute differs[^<]*", text)
    bars = re.findall(
        r'<i class="then" style="width: ([\d.]+)%"></i><i class="now" style="width: ([\d.]+)%">', text
    )
    assert len(bars) == 3 and bars[2][1] == "100.00"
    assert float(bars[2][0]) == pytest.approx(100 * 8 / 12, abs=3)


@pytest.mark.usefixtures("undrawn")
def test_equal_runs_show_no_difference(run_with: Measure, tmp_path: Path) -> None:
    text = report.write([Run(run_with(0.02)), Run(run_with(0.02))], tmp_path / "report").read_text()
    assert "No difference shown: in 3 settings the time to compute differs by no more than" in text


def test_two_runs_of_an_experiment_have_anchors_and_figures_of_their_own(
    run_with: Measure, tmp_path: Path
) -> None:
    runs = [run_with(0.02), run_with(0.04)]
    text = report.write([Run(run) for run in runs], tmp_path / "report").read_text()
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]+)"', text):
        assert target in ids
    figures = sorted(file.name for file in (tmp_path / "report").glob("*-compute_s.svg"))
    assert len(figures) == 2
    assert len({(tmp_path / "report" / name).read_text() for name in figures}) == 2


@pytest.mark.usefixtures("undrawn")
def test_time_of_two_recorded_runs_is_divided_by_part(tmp_path: Path) -> None:
    runs = [previous_run(tmp_path / "then"), previous_run(tmp_path / "now")]
    text = report.write([Run(run) for run in runs], tmp_path / "report").read_text()
    assert "Where the time went, then and now" in text
    assert "No difference shown: too few trials to tell whether the time to compute changed." in text
    [then, now] = re.findall(r"<small>(?:then|now): ([^<]+)</small>", text)
    assert then == now and then.startswith("0.129 s; computing and worker lag 0.07")
    assert "<p>baseline: +0.000 s (0.129 to 0.129 s)" in text
    pages = [file.name for file in (tmp_path / "report" / "trials").glob("*.html")]
    assert len(pages) == 2


@pytest.mark.usefixtures("undrawn")
def test_one_run_has_nothing_beside_it(run_with: Measure, tmp_path: Path) -> None:
    assert 'class="side-by-side"' not in report.write([Run(run_with(0.02))], tmp_path / "report").read_text()
