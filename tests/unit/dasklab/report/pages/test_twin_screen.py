"""The report of a run that replays a record has the record, its simulation and the twin side by side."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab import report
from dasklab.cli import main
from dasklab.model.experiments import experiment, foreign_code
from dasklab.predict import record, twin
from dasklab.predict.twin import Machine, Twin
from dasklab.report.pages import twin_screen
from dasklab.results.run import Run, open_trial
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab

RECORD = Path(__file__).parents[4] / "data" / "records" / "before_and_after"  # 7.04 s, simulated 7.08 s
TWIN_S = 8.1
TITLE = "Record, simulation and twin"


@pytest.fixture
def own_record(tmp_path: Path) -> Path:
    """A record that may be moved."""
    return Path(shutil.copytree(RECORD, tmp_path / "run"))


@pytest.fixture
def replayed(own_record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of the record's twin, whose trials a fake lab made up."""
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(twin_screen, "SEEDS", 1)
    lab = Twin(record.read(open_trial(own_record)), Machine(cores=8, memory_bytes=16e9), "containers")
    twin.write(lab, tmp_path / "mytwin")
    name, content = experiment.load(str(tmp_path / "mytwin" / "twin.yml"))
    content = content.model_copy(update={"workers": 3})  # as many as the fake lab has
    foreign_code.Code("its workload", lab.source).trust()
    ongoing = driver.start(tmp_path / "results", name, content, SETUP, quick=False)
    driver.execute(ongoing, FakeLab(lambda trial: TWIN_S), lambda trial, state: None)
    return ongoing.opened_again()


def table_rows(page: str) -> Iterator[list[str]]:
    """Yield the rows of the twin's table."""
    table = page.partition(f'aria-label="{TITLE}')[2].partition("</table>")[0]
    for row in re.findall(r"<tr>(<td.*?)</tr>", table):
        yield re.findall(r"<td[^>]*>(.*?)</td>", row)


@pytest.mark.usefixtures("undrawn")
def test_report_of_a_twin_has_record_simulation_and_twin(
    replayed: Run, own_record: Path, tmp_path: Path
) -> None:
    page = report.write([replayed], tmp_path / "report", record=open_trial(own_record))
    first, _, rest = page.read_text().partition("Every setting, every metric")
    assert TITLE in first and rest
    recorded, simulated, measured = table_rows(first)
    assert recorded == ["record", "1", "7.04 s", "", "", "0 MB"]
    assert simulated[:3] == ["record, simulated", "1", "7.08 s"]
    assert measured[:2] == ["twin", "6"] and measured[4] in ("+14 %", "+15 %", "+16 %")
    sentence = re.search(
        r"The twin took 8\.\d\d s \(mean of 6 repeats\), 1[456] % more than the record \(7\.04 s\)\. The"
        r" record&#39;s simulation took 7\.08 s, 1 % more than the record\.",
        first,
    )
    assert sentence
    text = page.with_name("report.md").read_text()
    assert sentence[0].replace("&#39;", "'") in text
    assert "|---|---:|---:|---:|---:|---:|\n| record | 1 | 7.04 s |" in text
    assert re.search(r"^\| record, simulated \| 1 \| 7\.08 s \|.*\| \+1 % \| 0 MB \|$", text, re.M)
    options = ["twin", str(own_record), "--compare", str(replayed.folder), "--seeds", "1"]
    printed = " ".join(CliRunner().invoke(main, options, catch_exceptions=False).output.split())
    for row in (recorded, simulated, measured):  # the command and the report are of one opinion
        assert " ".join(filter(None, row)) in printed
    assert sentence[0].replace("&#39;", "'") in printed


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (None, "This run replays a record. To compare the two: dasklab report RUN --record RECORD"),
        ("slow_link_scatter", "Not compared with the record: {run}: it is no run of a twin of {record}."),
    ],
)
def test_report_says_why_nothing_is_compared(
    replayed: Run, tmp_path: Path, name: str | None, sentence: str
) -> None:
    record = open_trial(RECORD.with_name(name)) if name else None
    page = report.write([replayed], tmp_path / "report", record=record).read_text()
    assert f"<p>{sentence.format(run=replayed, record=record and record.folder)}</p>" in page
    assert not [*table_rows(page)]


@pytest.mark.usefixtures("undrawn")
def test_nothing_leads_from_a_twin_or_its_run_to_the_record(
    replayed: Run, own_record: Path, tmp_path: Path
) -> None:
    files = [
        file for folder in ("mytwin", "results") for file in (tmp_path / folder).rglob("*") if file.is_file()
    ]
    assert not [file for file in files if os.fsencode(own_record) in file.read_bytes()]
    shutil.rmtree(own_record)
    assert TITLE in report.write([replayed], tmp_path / "report").read_text()


@pytest.mark.usefixtures("undrawn")
def test_other_runs_have_no_such_part(
    measured: Callable[[FakeLab], driver.ActiveRun], tmp_path: Path
) -> None:
    run = measured(FakeLab()).opened_again()
    assert not twin.replays_record(run)
    assert TITLE not in report.write([run], tmp_path / "report").read_text()
