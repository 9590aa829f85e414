"""Records of programs that died, and of a client that was closed: a sentence instead of nonsense."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.breakdown.show.explain import explain
from dasklab.cli import main
from dasklab.results.run import Trial

RECORDS = Path(__file__).parents[4] / "data" / "records"


@pytest.fixture
def record(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(RECORDS / request.param, tmp_path / "run"))


@pytest.mark.parametrize(
    ("record", "words"),
    [("closed", "it shows no worker"), ("running", "none of its tasks had ended when the recording did")],
    indirect=["record"],
)
def test_record_without_an_explanation_is_refused_in_one_line(record: Path, words: str) -> None:
    result = CliRunner().invoke(main, ["explain", str(record)])
    assert result.exit_code == 1
    assert f"{record}: {words}" in result.output


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
def test_record_whose_first_graph_had_no_result_before_is_explained(record: Path) -> None:
    result = CliRunner().invoke(main, ["explain", str(record)])
    assert result.exit_code == 0
    assert result.output.startswith("It is unknown whether this record is complete")


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
def test_file_that_ends_within_rows_is_a_record_that_was_cut_off(record: Path) -> None:
    with (record / "record.chunks").open("r+b") as file:
        file.truncate(70_000)
    assert CliRunner().invoke(main, ["explain", str(record)]).output.startswith("The recording was cut off")
    checked = CliRunner().invoke(main, ["check", str(record), "--against", str(record)])
    assert checked.exit_code == 4 and "cut off" in checked.output


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
@pytest.mark.parametrize(("size", "complete"), [(None, None), (70_000, False)])
def test_json_states_whether_a_record_is_complete(
    record: Path, size: int | None, complete: bool | None
) -> None:
    with (record / "record.chunks").open("r+b") as file:
        file.truncate(size or len(file.read()))
    first, *_ = CliRunner().invoke(main, ["explain", str(record), "--json"]).output.splitlines()
    assert json.loads(first)["complete"] is complete


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
def test_comparison_says_which_record_was_cut_off(record: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(record, tmp_path / "cut")
    with (cut / "record.chunks").open("r+b") as file:
        file.truncate(70_000)
    text = CliRunner().invoke(main, ["explain", str(record), str(cut)]).output
    assert text.startswith("run: It is unknown") and "\ncut: The recording was cut off" in text
    document = json.loads(CliRunner().invoke(main, ["explain", str(record), str(cut), "--json"]).output)
    assert document["before"]["complete"] is None and document["after"]["complete"] is False


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
@pytest.mark.parametrize("size", [0, 1_000, 20_000, 45_000, 60_000, 80_000])
def test_record_is_explained_or_refused_wherever_it_was_cut(record: Path, size: int) -> None:
    with (record / "record.chunks").open("r+b") as file:
        file.truncate(size)
    result = CliRunner().invoke(main, ["explain", str(record)])
    assert result.exit_code in (0, 1) and "0 threads" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("record", ["no_graph_before"], indirect=True)
def test_the_document_of_a_record_is_read_once(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[str] = []
    read_bytes = Path.read_bytes

    def counted(path: Path) -> bytes:
        files.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    explain(Trial(record))
    assert (files.count("record.json"), files.count("record.chunks")) == (1, 1)
