"""What commands print on a terminal of 80 columns: sentences wrap at words, tables fold, paths stay whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.paths import SHARE as ROOT

from tests.unit.dasklab.console.terminals import code_on_terminals, on_terminals

RECORD = ROOT / "tests" / "data" / "records" / "slow_link_gather"
INVENTORY = str(ROOT / "inventory" / "examples" / "existing" / "hosts.yml")
COLUMNS = 80


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A record at a path of 80 characters or more, below the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = Path("results", "long" * 20, "record")
    shutil.copytree(RECORD, folder)
    return str(folder)


def long_lines(text: str) -> list[str]:
    """Return the lines that are too long and could have been wrapped, because they have several words."""
    return [line for line in text.splitlines() if len(line) > COLUMNS and " " in line.strip()]


@pytest.mark.parametrize("options", [[], ["--all"], ["--why"]], ids=" ".join)
def test_explanation_fits_and_no_word_of_it_is_cut(record: str, options: list[str]) -> None:
    argv = ["explain", record, *options]
    [printed] = on_terminals(COLUMNS, argv=argv)
    pictures = [line for line in long_lines(printed) if line.startswith("Threads over time: ")]
    assert long_lines(printed) == pictures
    unwrapped = CliRunner().invoke(main, argv).output
    sentences, _, _ = unwrapped.partition("\ncause" if "--why" not in options else "\nclause")
    assert " ".join(sentences.split()) in " ".join(printed.split())


def test_what_a_script_prints_of_its_recording_fits(record: str) -> None:
    """As `print(run.explain())` and `print(run.why())` do."""
    of_folder = (
        f"from dasklab.breakdown.show.notebook import explain_folder; it = explain_folder(Path({record!r}))"
    )
    [printed] = code_on_terminals(
        COLUMNS, code=f"from pathlib import Path; {of_folder}; print(it); print(it.why())"
    )
    assert "It took 4.32 s on 2 threads." in printed and "client: gather" in printed
    assert long_lines(printed) == []


def test_picture_is_named_by_a_path_that_can_be_pasted(record: str) -> None:
    [printed] = on_terminals(COLUMNS, argv=["explain", str(Path(record).absolute())])
    [line] = [line for line in printed.splitlines() if line.endswith(".svg")]
    assert Path(line.rpartition(" ")[2]) == Path(record, "explain.svg")
    assert Path(record, "explain.svg").exists()


@pytest.mark.parametrize(
    "argv",
    [["results"], ["inspect", "-i", INVENTORY], ["graph", "-i", INVENTORY, "--format", "mermaid"]],
    ids=lambda argv: argv[0],
)
@pytest.mark.usefixtures("record")
def test_tables_fold(argv: list[str]) -> None:
    [printed] = on_terminals(COLUMNS, argv=argv)
    assert printed.strip()
    assert long_lines(printed) == []


def test_prediction_of_a_record_fits(record: str) -> None:
    [printed] = on_terminals(COLUMNS, argv=["whatif", record, "--seeds", "1"])
    assert "may be" in printed
    assert long_lines(printed) == []


@pytest.mark.parametrize("argv", [["doctor"], ["--help"]], ids=" ".join)
@pytest.mark.usefixtures("record")
def test_text_wraps(argv: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DASKLAB_INVENTORY", INVENTORY)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    [printed] = on_terminals(COLUMNS, argv=argv)
    folders = [line for line in long_lines(printed) if line.startswith("--    ")]
    assert printed.strip()
    assert long_lines(printed) == folders


@pytest.mark.parametrize("name", sorted({*main.list_commands(Context(main))} - {"minipve", "wire"}))
def test_help_fits(name: str) -> None:
    printed = CliRunner().invoke(main, [name, "--help"], terminal_width=COLUMNS).output
    assert "Usage: " in printed
    assert [line for line in printed.splitlines() if len(line) > COLUMNS] == []


def test_error_wraps(record: str) -> None:
    error = f'CommandError("{record}: " + "word " * 30 + "\\n  next step")'
    code = f"from dasklab.terminal import CommandError; {error}.show()"
    [printed] = code_on_terminals(COLUMNS, code=code)
    assert printed.split() == ["dasklab:", f"{record}:", *["word"] * 30, "next", "step"]
    assert long_lines(printed) == [] and printed.endswith("\n  next step\n")


def test_table_without_rows_is_not_printed(record: str) -> None:
    assert "iperf3" not in CliRunner().invoke(main, ["explain", record, "--all"]).output
