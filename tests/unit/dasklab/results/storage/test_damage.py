"""A damaged or missing file takes out its own trial, or its own run, and is named; commands continue."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from dasklab import notices
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Attempt, CaptureReport, Configured, Hosts, Measured, Timings
from dasklab.model.files import Result as TrialResult
from dasklab.model.forms.document import Document
from dasklab.results import cached, load
from dasklab.results.storage import damage as damages
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import FakeLab, capture_report

DATA = Path(__file__).parents[4] / "data"
RUN = DATA / "run" / "baseline.tar.xz"
CAPTURE = DATA / "wire" / "g3-2026.8.0.pcap.gz"
BAD, GOOD = "1-01-baseline", "2-01-baseline"
KINDS: tuple[type[Document], ...] = (
    *(RequestedTrial, Attempt, TrialResult, Timings, Measured),
    *(Configured, Hosts, CaptureReport),
)
Damage = Callable[[Path], Any]


def edit(change: Callable[[Any], Any]) -> Damage:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text()))))


def negate(value: Any) -> Any:
    """Return the value with all numbers below zero."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [negate(inner) for inner in value]
    if isinstance(value, dict):
        return {key: inner if key == "schema" else negate(inner) for key, inner in value.items()}
    return -abs(value) - 1


def change_types(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with a text for each list, and a list for everything else."""
    other = {key: "text" if isinstance(value, list) else ["text"] for key, value in document.items()}
    return other | {"schema": document["schema"]}


def cut_in_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": cut_in_half,
    "garbage": lambda path: path.write_bytes(bytes(range(256))),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a folder": replace_by_folder,
    "nested": lambda path: path.write_text("[" * 200_000),
    "a list": lambda path: path.write_text("[]"),
    "null": lambda path: path.write_text("null"),
    "bare": lambda path: path.write_text('{"schema": 4}'),
    "of another type": edit(change_types),
    "negative": edit(negate),
    "of a later format": edit(lambda document: document | {"schema": 5}),
    "without a format": edit(lambda document: {k: v for k, v in document.items() if k != "schema"}),
}


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with two runs of two trials each. The trials have captures and Dask's own records."""
    results = tmp_path_factory.mktemp("undamaged") / "results"
    run = results / "baseline" / "20260101T000000Z"
    with tarfile.open(RUN) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(run)
    raw = gzip.decompress(CAPTURE.read_bytes())
    (run / BAD / "capture.pcap").write_bytes(raw)
    report = capture_report()
    tier = report["tiers"][0] | {"file": "capture.pcap", "bytes": len(raw)}
    (run / BAD / "capture.json").write_text(json.dumps(report | {"tiers": [tier]}))
    edit(lambda document: document | {"files": damages.left(run / BAD)})(run / BAD / "attempt.json")
    shutil.copytree(run / BAD, run / GOOD)
    for name in ("trial", "result"):
        edit(lambda document: document | {"trial": GOOD})(run / GOOD / f"{name}.json")
    edit(lambda document: document | {"block": 2})(run / GOOD / "trial.json")
    edit(lambda document: document | {"order": [BAD, GOOD]})(run / "experiment.json")
    shutil.copytree(run, run.with_name("20260102T000000Z"))
    return results


@pytest.fixture
def results(undamaged: Path, tmp_path: Path, undrawn: None) -> Path:
    """A copy to damage. Warnings that were printed before do not count."""
    notices.warn.cache_clear()
    return Path(shutil.copytree(undamaged, tmp_path / "results"))


def dasklab(*words: str | Path) -> Result:
    """Run a command, which must not end in a traceback."""
    notices.warn.cache_clear()
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    assert "Traceback" not in result.output
    return result


def run_of(results: Path, number: int = 0) -> Path:
    return sorted(results.glob("baseline/*"))[number]


def test_undamaged_files_are_read_without_warnings(results: Path) -> None:
    result = dasklab("results", "--results", results)
    assert result.stderr == "" and result.stdout.count("2/2") == 2


def test_run_without_records_names_a_few_of_them(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 300 trials from which somebody removed what is large would fill screens otherwise."""
    monkeypatch.setattr("dasklab.results.run.MOST_GAPS", 1)
    run = run_of(results)
    monkeypatch.setattr("dasklab.results.storage.damage.gaps", lambda folder: [f"{folder}: no records"])
    result = dasklab("results", "show", run)
    assert [line.rpartition(": ")[2] for line in result.stderr.splitlines()] == [
        "no records",
        "1 more file of its trials missing",
    ]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_document_takes_out_its_own_trial_only(
    results: Path, tmp_path: Path, kind: type[Document], how: str
) -> None:
    if how == "bare" and kind in (Measured, Configured):
        return  # valid: a trial without probes, or without hosts to read back
    run = run_of(results)
    file = run / BAD / kind.FILE
    DAMAGES[how](file)
    result = dasklab("results", "--results", results)
    assert result.exit_code == 0
    assert str(file) in result.stderr and result.stderr.count("\n") == 1
    assert f"{file}: " in result.stderr and "; the trial is left out (to run it again: " in result.stderr
    assert [line.split()[2:4] for line in result.stdout.splitlines()[1:]] == [["1/2", "1"], ["2/2", "2"]]
    assert dasklab("results", "export", run, tmp_path / "table.csv").exit_code == 0
    assert set(pd.read_csv(tmp_path / "table.csv").trial) == {GOOD}


COMMANDS: dict[str, Callable[[Path, Path], tuple[str | Path, ...]]] = {
    "results": lambda results, out: ("results", "--results", results),
    "show": lambda results, out: ("results", "show", run_of(results)),
    "compare": lambda results, out: ("results", "compare", run_of(results), run_of(results, 1)),
    "export": lambda results, out: ("results", "export", results, out / "table.parquet"),
    "report": lambda results, out: ("report", results, "-o", out / "report"),
    "explain": lambda results, out: ("explain", run_of(results)),
    "history": lambda results, out: ("history", "--results", out / "kept", "add", results),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("kind", "how"), [("result", "truncated"), ("timings", "removed"), ("hosts", "bare")]
)
def test_every_command_continues(results: Path, tmp_path: Path, command: str, kind: str, how: str) -> None:
    file = run_of(results) / BAD / f"{kind}.json"
    DAMAGES[how](file)
    result = dasklab(*COMMANDS[command](results, tmp_path))
    assert result.exit_code == 0, result.output
    assert str(file) in result.stderr
    if command == "report":
        assert f"{BAD} was left out" in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("show", "compare", "explain")])
@pytest.mark.parametrize("how", ["removed", "emptied", "garbage", "of a later format", "of another type"])
def test_damaged_run_leaves_the_others(results: Path, tmp_path: Path, command: str, how: str) -> None:
    file = run_of(results) / "experiment.json"
    DAMAGES[how](file)
    result = dasklab(*COMMANDS[command](results, tmp_path))
    assert result.exit_code == 0, result.output
    assert f"{file}: " in result.stderr and "the run is left out" in result.stderr


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "a folder"])
def test_lost_capture_is_named_and_the_timings_stay(results: Path, tmp_path: Path, how: str) -> None:
    file = run_of(results) / BAD / "capture.pcap"
    DAMAGES[how](file)
    result = dasklab("results", "--results", results)
    assert f"{file}: " in result.stderr and "its capture is incomplete" in result.stderr
    assert result.stdout.count("2/2") == 2
    assert dasklab("report", run_of(results), "-o", tmp_path / "report").exit_code == 0
    notes = (tmp_path / "report" / "report.md").read_text()
    assert "The capture is incomplete" in notes and "capture.pcap" in notes


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "garbage", "zeros", "bare", "chunks"])
def test_damaged_records_leave_one_trial_unexplained(results: Path, how: str) -> None:
    trial = run_of(results) / BAD
    file = trial / "record" / ("record.chunks" if how == "chunks" else "record.json")
    DAMAGES["truncated" if how == "chunks" else how](file)
    result = dasklab("explain", run_of(results))
    assert result.exit_code == 0 and str(file) in result.stderr
    assert "baseline: It took" in result.stdout
    if how != "removed":
        alone = dasklab("explain", trial)
        assert alone.exit_code == 3 and str(file) in alone.stderr


def in_cache(run: Path, table: str) -> Path:
    """Return a table of the bad trial, once it was reported."""
    assert dasklab("report", run, "-o", run.parent / "before").exit_code == 0
    [file] = cached.folder(cached.COMPUTED).glob(f"*-{BAD}/{table}")
    return file


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "garbage"])
@pytest.mark.parametrize("table", ["record/tasks.parquet", "decoded/ops.parquet"])
def test_damaged_table_is_made_again(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path, table: str, how: str
) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    run = run_of(results)
    file = in_cache(run, table)
    before = file.read_bytes()
    DAMAGES[how](file)
    result = dasklab("report", run, "-o", tmp_path / "after")
    assert result.exit_code == 0, result.output
    if how != "removed":
        assert str(file) in result.stderr and "again" in result.stderr
    assert file.read_bytes() == before
    pages = [(folder / "report.md").read_text() for folder in (run.parent / "before", tmp_path / "after")]
    assert pages[0] == pages[1]


def test_tables_that_came_with_a_run_are_not_read(results: Path, tmp_path: Path) -> None:
    """Parquet of somebody else may unpack to anything."""
    for table in ("records/tasks.parquet", "decoded/ops.parquet", "decoded/summary.json"):
        file = run_of(results) / BAD / table
        file.parent.mkdir(exist_ok=True)
        file.write_text("not a table")
    result = dasklab("report", run_of(results), "-o", tmp_path / "report")
    assert (result.exit_code, result.stderr) == (0, ""), result.output


def test_damaged_table_without_its_capture_is_named(
    monkeypatch: pytest.MonkeyPatch, results: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    run = run_of(results)
    cut_in_half(in_cache(run, "decoded/ops.parquet"))
    (run / BAD / "capture.pcap").unlink()
    result = dasklab("report", run, "-o", tmp_path / "after")
    assert result.exit_code == 0
    assert "ops.parquet: damaged" in result.stderr and "cannot be made again" in result.stderr


def test_run_without_a_finished_trial_is_refused_in_one_line(results: Path, tmp_path: Path) -> None:
    run = run_of(results)
    for trial in (BAD, GOOD):
        shutil.rmtree(run / trial)
    result = dasklab("report", run, "-o", tmp_path / "report")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"dasklab: {run}: no trial is finished and complete\n")
    assert not (tmp_path / "report").exists()
    assert dasklab("report", results, "-o", tmp_path / "report").exit_code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged, it cannot be read"),
        (b"\xff\xfe\x00", "damaged, it cannot be read"),
        (b"a,b\n1,2\n", "this is not a history"),
        ("cut", "damaged, it cannot be read"),
        ("negative", "damaged, value must be 0 or more"),
        ("params", "damaged, params is not a JSON object"),
    ],
)
def test_damaged_history_is_named(results: Path, content: bytes | str, message: str) -> None:
    assert dasklab("history", "--results", results, "add", run_of(results)).exit_code == 0
    file = results / "history.csv"
    text = file.read_text()
    changes = {
        "cut": text[:-3].rpartition(",")[0].rpartition(",")[0] + ",",
        "negative": text.rpartition(",")[0] + ",-1.0\n",
        "params": text.replace("{}", "{"),
    }
    file.write_bytes(changes[content].encode() if isinstance(content, str) else content)
    result = dasklab("history", "--results", results)
    assert result.exit_code == 1
    assert str(file) in result.stderr and message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00PAR1", b"a,b\n1,2\n"])
def test_damaged_table_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError, match=f"{name}: "):
        load(tmp_path / name)


def test_attempt_names_the_files_of_its_trial(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    directory = run.stored.folder / run.trials[0].trial
    files = json.loads((directory / "attempt.json").read_text())["files"]
    assert set(files) == {"trial.json", "timings.json", "measured.json", "configured.json", "hosts.json"}
    for name in files:
        content = (directory / name).read_text()
        (directory / name).unlink()
        assert damages.damage(directory) == f"{directory / name}: the file is missing"
        (directory / name).write_text(content)
    assert damages.damage(directory) is None


def test_run_continues_with_a_damaged_trial(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    damaged, unfinished, *_ = [run.stored.folder / trial.trial for trial in run.trials]
    cut_in_half(damaged / "timings.json")
    (unfinished / "result.json").unlink()
    lab = FakeLab()
    driver.execute(driver.resume(run.opened_again()), lab, lambda trial, state: None)
    assert lab.ran == [unfinished.name]
    assert damages.damage(unfinished) is None
    again = FakeLab()
    driver.execute(driver.resume(run.opened_again(), again=True), again, lambda trial, state: None)
    assert again.ran == [damaged.name] and damages.damage(damaged) is None


@pytest.mark.parametrize("document", ["timings.json", "measured.json"])
def test_trial_that_leaves_a_damaged_file_has_failed(
    measured: Callable[..., driver.ActiveRun], document: str
) -> None:
    def spoil(trial: dict[str, Any], files: dict[str, Any]) -> int:
        if trial["cell"] == "delay_ms=50":
            files[document] = {"schema": 4, "rtt": 5}
        return 0

    run = measured(FakeLab(spoil=spoil))
    frame = pd.read_parquet(run.stored.folder / "samples.parquet")
    assert set(frame.cell) == {"delay_ms=0", "delay_ms=200"}
