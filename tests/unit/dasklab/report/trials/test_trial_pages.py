"""Each trial has a page: settings, verdict, where the time went, a timeline, and files to download."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from dasklab import report
from dasklab.breakdown.show.explain import Explained
from dasklab.model.files import Result
from dasklab.report.drawings.timeline import drawing
from dasklab.report.trials import downloads, trial_pages
from dasklab.results.run import Run, Trial
from dasklab.results.storage import documents
from dasklab.running.driver import driver

from tests.unit.dasklab.breakdown.timelines import by_hand
from tests.unit.dasklab.conftest import FakeLab, Json
from tests.unit.dasklab.stored_run import previous_run

Measure = Callable[..., driver.ActiveRun]
NAME = "baseline-20251123T000000Z-trial-1"


def pages_of(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted((folder / "trials").glob("*.html"))}


def fail_once(trial: Json, files: Json) -> int:
    return 2 if trial["cell"] == "delay_ms=50" and trial["block"] == 1 else 0


@pytest.mark.usefixtures("undrawn")
def test_pages_of_trials_lead_from_one_to_the_next(measured: Measure, tmp_path: Path) -> None:
    report.write([measured(FakeLab(spoil=fail_once)).opened_again()], tmp_path / "report")
    pages = pages_of(tmp_path / "report")
    assert len(pages) == 8
    names, visited = set(pages), []
    name = next(name for name in pages if name.endswith("-trial-1.html"))
    while name:
        visited.append(name)
        match = re.search(r'href="([^"]+)">Next trial', pages[name])
        name = match[1] if match else ""
    assert set(visited) == names and len(visited) == 8
    failed = [text for text in pages.values() if "Not in the statistics (failed)" in text]
    assert len(failed) == 1 and "ended with status 2" in failed[0]
    assert "50 ms of delay on the scheduler&#39;s link" in failed[0]
    # nothing was recorded inside Dask, so there is no timeline and no BokehJS
    assert not any("timeline-data" in text for text in pages.values())
    assert not (tmp_path / "report" / "trials" / drawing.SCRIPT).exists()


@pytest.mark.usefixtures("undrawn")
def test_warning_about_a_trial_is_on_each_page_that_shows_it(measured: Measure, tmp_path: Path) -> None:
    run, text = measured(FakeLab()).stored.folder, "1.00 % of the TCP segments <b>"
    first = Run(run).trials[0].folder
    result = documents.require(Result, first)
    documents.write(first, result.model_copy(update={"warnings": (text,)}))
    report.write([Run(run)], tmp_path)
    shown = f"Warning: {html.escape(text)}"
    page = (tmp_path / "report.html").read_text()
    assert f'<p class="note">Warning: {result.trial}: {html.escape(text)}.</p>' in page
    assert f"<td>ok<br><small>{shown}</small></td>" in page
    assert (
        sum("<strong>Valid.</strong>" in text and shown in text for text in pages_of(tmp_path).values()) == 1
    )
    assert f"Warning: {result.trial}: 1.00 % of the TCP segments" in (tmp_path / "report.md").read_text()


def test_page_of_a_recorded_trial_has_a_timeline_and_its_downloads(tmp_path: Path) -> None:
    run = previous_run(tmp_path / "results")
    report.write([Run(run)], tmp_path / "report")
    folder = tmp_path / "report" / "trials"
    text = pages_of(tmp_path / "report")[f"{NAME}.html"]
    assert "Where the time went" in text and "On the critical path:" in text
    assert (folder / drawing.SCRIPT).read_bytes() == drawing.script()
    assert re.findall(r'<script src="([^"]+)"', text) == [drawing.SCRIPT]
    document = re.search(r'id="timeline-data">(.*?)</script>', text, re.S)
    assert document and "root_id" in json.loads(document[1])
    links = re.findall(r'<li><a href="([^"]+)">', text)
    assert links[0] == f"{NAME}.pftrace" and links[-1].endswith("/1-01-baseline/")
    assert all((folder / link).exists() for link in links)
    assert not re.findall(r'src="(https?:[^"]+)"', text)


def test_trace_of_very_many_tasks_is_left_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MOST_TRACED", 3)
    report.write([Run(previous_run(tmp_path / "results"))], tmp_path / "report")
    text = pages_of(tmp_path / "report")[f"{NAME}.html"]
    assert "dasklab explain" in text and "--trace" in text
    assert not list((tmp_path / "report" / "trials").glob("*.pftrace"))


@pytest.mark.usefixtures("undrawn")
def test_single_file_has_no_pages_of_trials(tmp_path: Path) -> None:
    run = previous_run(tmp_path / "results")
    file = report.write_single_file([Run(run)], tmp_path / "mail" / "report.html")
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    assert "trials/" not in file.read_text()


def test_captured_runs_are_shown_where_no_others_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = Explained(Trial(tmp_path), True, {}, [by_hand()], {}, pd.DataFrame())
    monkeypatch.setattr(trial_pages, "explain", lambda trial, captured: explained if captured else None)
    for kinds, expected in (({True}, explained), ({False, True}, None), (set(), None)):
        monkeypatch.setattr(
            trial_pages.records, "recorded", lambda directory, captured=False, kinds=kinds: captured in kinds
        )
        assert trial_pages._captured(Trial(tmp_path)) is expected
    timeline = trial_pages._timeline(explained)
    assert timeline is not None and timeline.repeat == "captured repeat 0"
