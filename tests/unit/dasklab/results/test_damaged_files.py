"""A damaged or missing file takes out its own trial, or its own run, and is named; the rest goes on."""

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
from dasklab.results.storage import damage as damages
from dasklab.running import driver

from tests.unit.dasklab.conftest import FakeLab, capture_report

DATA = Path(__file__).parents[3] / "data"
RUN = DATA / "run" / "baseline.tar.xz"
CAPTURE = DATA / "wire" / "g3-2026.8.0.pcap.gz"
BAD, GOOD = "1-01-baseline", "2-01-baseline"
KINDS = ("trial", "attempt", "result", "timings", "measured", "configured", "hosts", "capture")
Damage = Callable[[Path], Any]


def edited(change: Callable[[Any], Any]) -> Damage:
    return lambda path: path.write_text(json.dumps(change(json.loads(path.read_text()))))


def negated(value: Any) -> Any:
    """The same with all numbers below zero."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [negated(each) for each in value]
    if isinstance(value, dict):
        return {key: each if key == "schema" else negated(each) for key, each in value.items()}
    return -abs(value) - 1


def retyped(document: dict[str, Any]) -> dict[str, Any]:
    """The same with a text for each list and a list for all else."""
    lists = {key: "text" if isinstance(value, list) else ["text"] for key, value in document.items()}
    return lists | {"schema": document["schema"]}


def halved(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": halved,
    "garbage": lambda path: path.write_bytes(bytes(range(256))),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a folder": foldered,
    "nested": lambda path: path.write_text("[" * 200_000),
    "a list": lambda path: path.write_text("[]"),
    "null": lambda path: path.write_text("null"),
    "bare": lambda path: path.write_text('{"schema": 3}'),
    "of another type": edited(retyped),
    "negative": edited(negated),
    "of a later schema": edited(lambda document: document | {"schema": 4}),
    "without a schema": edited(lambda document: {k: v for k, v in document.items() if k != "schema"}),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with two runs, each of two trials, which have captures and Dask's own records."""
    results = tmp_path_factory.mktemp("whole") / "results"
    run = results / "baseline" / "20260101T000000Z"
    with tarfile.open(RUN) as archive:
        archive.extractall(run, filter="data")
    raw = gzip.decompress(CAPTURE.read_bytes())
    (run / BAD / "capture.pcap").write_bytes(raw)
    report = capture_report()
    tier = report["tiers"][0] | {"file": "capture.pcap", "bytes": len(raw)}
    (run / BAD / "capture.json").write_text(json.dumps(report | {"tiers": [tier]}))
    shutil.copytree(run / BAD, run / GOOD)
    for name in ("trial", "result"):
        edited(lambda document: document | {"trial": GOOD})(run / GOOD / f"{name}.json")
    edited(lambda document: document | {"block": 2})(run / GOOD / "trial.json")
    edited(lambda document: document | {"order": [BAD, GOOD]})(run / "experiment.json")
    shutil.copytree(run, run.with_name("20260102T000000Z"))
    return results


@pytest.fixture
def results(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Path:
    """A copy to be damaged. What was warned of before counts for nothing."""
    notices.warn.cache_clear()
    return Path(shutil.copytree(whole, tmp_path / "results"))


def dasklab(*words: str | Path) -> Result:
    """Run a command, which must not end in a traceback."""
    notices.warn.cache_clear()
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert "Traceback" not in done.output
    return done


def run_of(results: Path, number: int = 0) -> Path:
    return sorted(results.glob("baseline/*"))[number]


def test_whole_files_are_read_without_a_word(results: Path) -> None:
    done = dasklab("results", "--results", results)
    assert done.stderr == "" and done.stdout.count("2/2") == 2


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_document_takes_out_its_own_trial_alone(
    results: Path, tmp_path: Path, kind: str, how: str
) -> None:
    if how == "bare" and kind in ("measured", "configured"):
        pytest.skip("of a trial without probes, or without hosts to read back, this is the whole file")
    run = run_of(results)
    file = run / BAD / f"{kind}.json"
    DAMAGES[how](file)
    done = dasklab("results", "--results", results)
    assert done.exit_code == 0
    assert str(file) in done.stderr and done.stderr.count("\n") == 1
    assert f"{file}: " in done.stderr and "; the trial is left out (to run it again: " in done.stderr
    assert [line.split()[2:4] for line in done.stdout.splitlines()[1:]] == [["1/2", "1"], ["2/2", "2"]]
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
def test_every_command_goes_on(results: Path, tmp_path: Path, command: str, kind: str, how: str) -> None:
    file = run_of(results) / BAD / f"{kind}.json"
    DAMAGES[how](file)
    done = dasklab(*COMMANDS[command](results, tmp_path))
    assert done.exit_code == 0, done.output
    assert str(file) in done.stderr
    if command == "report":
        assert f"{BAD} was left out" in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("show", "compare", "explain")])
@pytest.mark.parametrize("how", ["removed", "emptied", "garbage", "of a later schema", "of another type"])
def test_a_damaged_run_leaves_the_others(results: Path, tmp_path: Path, command: str, how: str) -> None:
    file = run_of(results) / "experiment.json"
    DAMAGES[how](file)
    done = dasklab(*COMMANDS[command](results, tmp_path))
    assert done.exit_code == 0, done.output
    assert f"{file}: " in done.stderr and "the run is left out" in done.stderr


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "a folder"])
def test_a_lost_capture_is_named_and_the_timings_stay(results: Path, tmp_path: Path, how: str) -> None:
    file = run_of(results) / BAD / "capture.pcap"
    DAMAGES[how](file)
    done = dasklab("results", "--results", results)
    assert f"{file}: " in done.stderr and "its capture is incomplete" in done.stderr
    assert done.stdout.count("2/2") == 2
    assert dasklab("report", run_of(results), "-o", tmp_path / "report").exit_code == 0
    notes = (tmp_path / "report" / "report.md").read_text()
    assert "The capture is incomplete" in notes and "capture.pcap" in notes


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "garbage", "zeros", "bare", "records"])
def test_damaged_records_leave_one_trial_unexplained(results: Path, how: str) -> None:
    file = run_of(results) / BAD / "records.json"
    damages_of = DAMAGES | {"records": edited(lambda document: document | {"records": "bm90IHppcHBlZA=="})}
    edited(lambda document: document | {"files": damages.left(file.parent)})(file.parent / "attempt.json")
    damages_of[how](file)
    done = dasklab("explain", run_of(results))
    assert done.exit_code == 0 and str(file) in done.stderr
    assert "baseline: A run took" in done.stdout
    if how != "removed":
        alone = dasklab("explain", run_of(results) / BAD)
        assert alone.exit_code == 1 and str(file) in alone.stderr


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "garbage"])
@pytest.mark.parametrize("table", ["inside/tasks.parquet", "decoded/ops.parquet"])
def test_a_damaged_table_is_made_again(results: Path, tmp_path: Path, table: str, how: str) -> None:
    run = run_of(results)
    assert dasklab("report", run, "-o", tmp_path / "before").exit_code == 0
    file = run / BAD / table
    before = file.read_bytes()
    DAMAGES[how](file)
    done = dasklab("report", run, "-o", tmp_path / "after")
    assert done.exit_code == 0, done.output
    if how != "removed":
        assert str(file) in done.stderr and "again" in done.stderr
    assert file.read_bytes() == before
    pages = [(tmp_path / name / "report.md").read_text() for name in ("before", "after")]
    assert pages[0] == pages[1]


def test_a_damaged_table_whose_capture_is_lost_is_named(results: Path, tmp_path: Path) -> None:
    run = run_of(results)
    assert dasklab("report", run, "-o", tmp_path / "before").exit_code == 0
    halved(run / BAD / "decoded" / "ops.parquet")
    (run / BAD / "capture.pcap").unlink()
    done = dasklab("report", run, "-o", tmp_path / "after")
    assert done.exit_code == 0
    assert "ops.parquet: damaged" in done.stderr and "cannot be made again" in done.stderr


def test_a_run_without_a_finished_trial_is_refused_in_one_line(results: Path, tmp_path: Path) -> None:
    run = run_of(results)
    for trial in (BAD, GOOD):
        shutil.rmtree(run / trial)
    done = dasklab("report", run, "-o", tmp_path / "report")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"dasklab: {run}: none of its trials is finished and whole\n")
    assert not (tmp_path / "report").exists()
    assert dasklab("report", results, "-o", tmp_path / "report").exit_code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged, it cannot be read"),
        (b"\xff\xfe\x00", "damaged, it cannot be read"),
        (b"a,b\n1,2\n", "this is not a history"),
        ("cut", "damaged, it cannot be read"),
        ("negative", "damaged, value must be 0 or more"),
        ("params", "damaged, params is no JSON object"),
    ],
)
def test_a_damaged_history_is_named(results: Path, content: bytes | str, said: str) -> None:
    assert dasklab("history", "--results", results, "add", run_of(results)).exit_code == 0
    file = results / "history.csv"
    text = file.read_text()
    changes = {
        "cut": text[:-3].rpartition(",")[0].rpartition(",")[0] + ",",
        "negative": text.rpartition(",")[0] + ",-1.0\n",
        "params": text.replace("{}", "{"),
    }
    file.write_bytes(changes[content].encode() if isinstance(content, str) else content)
    done = dasklab("history", "--results", results)
    assert done.exit_code == 1
    assert str(file) in done.stderr and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00PAR1", b"a,b\n1,2\n"])
def test_a_damaged_table_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    from dasklab.errors import LabError
    from dasklab.results import load

    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError, match=f"{name}: "):
        load(tmp_path / name)


def test_the_files_that_a_trial_left_are_written_down(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    directory = run.directory / run.trials[0].trial
    files = json.loads((directory / "attempt.json").read_text())["files"]
    assert set(files) == {"trial.json", "timings.json", "measured.json", "configured.json", "hosts.json"}
    for name in files:
        kept = (directory / name).read_text()
        (directory / name).unlink()
        assert damages.damage(directory) == f"{directory / name}: the file is missing"
        (directory / name).write_text(kept)
    assert damages.damage(directory) is None


def test_a_run_goes_on_beside_a_damaged_trial(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    damaged, undone, *_ = [run.directory / trial.trial for trial in run.trials]
    halved(damaged / "timings.json")
    (undone / "result.json").unlink()
    lab = FakeLab()
    driver.execute(driver.resume(run.directory), lab, lambda trial, state: None)
    assert lab.ran == [undone.name]
    assert damages.damage(undone) is None
    again = FakeLab()
    driver.execute(driver.resume(run.directory, again=True), again, lambda trial, state: None)
    assert again.ran == [damaged.name] and damages.damage(damaged) is None


@pytest.mark.parametrize("document", ["timings.json", "measured.json"])
def test_a_trial_that_leaves_a_damaged_file_has_failed(
    measured: Callable[..., driver.ActiveRun], document: str
) -> None:
    def spoil(trial: dict[str, Any], files: dict[str, Any]) -> int:
        if trial["cell"] == "delay_ms=50":
            files[document] = {"schema": 3, "rtt": 5}
        return 0

    run = measured(FakeLab(spoil=spoil))
    frame = pd.read_parquet(run.directory / "samples.parquet")
    assert set(frame.cell) == {"delay_ms=0", "delay_ms=200"}
