"""A trial's row has the links as requested, as configured and as measured; cells link to their trials."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab import report
from dasklab.cli import main
from dasklab.report.trials.trial_rows import TrialRow, by_cell, trial_rows
from dasklab.results import load
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab, Json

Measure = Callable[..., driver.ActiveRun]


def sloped(trial: Json) -> float:
    return 4.0 + 0.02 * float(trial["factors"]["delay_ms"])


def fail_once(trial: Json, files: Json) -> int:
    return 2 if trial["cell"] == "delay_ms=50" and trial["block"] == 1 else 0


def rows_of(run: Path) -> list[TrialRow]:
    return trial_rows(Run(run).trials, load(run), "compute_s", "delay", False)


def test_row_has_what_was_requested_configured_and_measured(measured: Measure) -> None:
    run = measured(FakeLab(sloped, fail_once))
    cells = by_cell(rows_of(run.stored.folder))
    failed, ok = cells["delay_ms=50"]
    assert ok.requested == ok.configured == "50 ms of delay on the scheduler's link"
    assert re.fullmatch(r"RTT 5[01]\.\d ms, [89]\.\d\d Gbit/s", ok.measured), ok.measured
    assert re.fullmatch(r"(4\.9|5\.0)\d s", ok.value), ok.value
    assert (ok.status, ok.reasons, ok.number) == ("ok", (), ok.name.removesuffix("-delay_ms=50"))
    assert (failed.status, failed.reasons) == ("failed", ("ended with status 2",))
    assert {row.requested for row in cells["delay_ms=0"]} == {"no impairment"}
    names = [row.name for rows in cells.values() for row in rows]
    null = [name for name in run.opened_again().document.order if name.endswith("-null")]
    assert len(null) == 2 and {*names, *null} == {*run.opened_again().document.order}


def test_difference_between_requested_and_configured_is_visible(measured: Measure) -> None:
    def forget(trial: Json, files: Json) -> int:
        for host in files["configured.json"]["hosts"].values():
            host["link"] = []
        files["configured.json"]["bridge"]["ageing_s"] = 0
        return 0

    row = by_cell(rows_of(measured(FakeLab(sloped, forget)).stored.folder))["delay_ms=200"][0]
    assert (row.requested, row.configured) == (
        "200 ms of delay on the scheduler's link",
        "a flooding bridge",
    )


@pytest.mark.usefixtures("undrawn")
def test_every_cell_links_to_its_trials_and_their_pages_to_their_files(
    measured: Measure, tmp_path: Path
) -> None:
    run = measured(FakeLab(sloped, fail_once))
    page = report.write([run.opened_again()], tmp_path / "report")
    text = page.read_text()
    ids = re.findall(r'<tr id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) == 8
    linked = re.findall(r'<td class="trials">(.*?)</td>', text)
    assert [len(re.findall("<a ", cell)) for cell in linked[:4]] == [2, 2, 2, 2]
    assert {target for cell in linked for target in re.findall(r'href="#([^"]+)"', cell)} < set(ids)
    pages = [page.parent / name for name in re.findall(r'<code><a href="([^"]+)"', text)]
    linked = [re.search(r'href="([^"]+)">All files', own.read_text())[1] for own in pages]
    folders = [pages[0].parent / link.replace("%3D", "=") for link in linked]
    assert [folder.resolve() for folder in folders] == [trial.folder for trial in run.opened_again().trials]


@pytest.mark.usefixtures("undrawn")
def test_single_file_stands_alone(measured: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, file = measured(FakeLab(sloped)).stored.folder, tmp_path / "mail" / "report.html"
    file.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["report", str(run), "--single-file", str(file)])
    assert (result.exit_code, result.output) == (0, "mail/report.html\n")
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    assert not (run / "report").exists()
    targets = re.findall(r'href="([^"]+)"', file.read_text())
    assert targets and all(re.match("#|https://", target) for target in targets)
    both = CliRunner().invoke(main, ["report", str(run), "-o", str(tmp_path), "--single-file", str(file)])
    assert (both.exit_code, "--single-file writes no folder" in both.output) == (2, True)
