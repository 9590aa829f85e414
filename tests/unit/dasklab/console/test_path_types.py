"""Paths of the command line: relative to the working directory, and outputs checked before the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from dasklab import paths
from dasklab.cli import main
from dasklab.commands import explain as explaining
from dasklab.console.options import inventory_option, results_option
from dasklab.console.path_types import OutputFile, OutputFolder, UserPath
from dasklab.paths import SHARE as ROOT
from dasklab.paths import make_environment_absolute

from tests.unit.dasklab.test_cli import EVERY, run


@click.command()
@inventory_option
@results_option
@click.option("--file", type=UserPath())
def show(inventory: Path, root: Path, file: Path) -> None:
    print(json.dumps([str(inventory), str(root), str(file)]))


@pytest.mark.parametrize("by_environment", [False, True])
def test_relative_paths_start_at_the_working_directory(
    by_environment: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if by_environment:
        monkeypatch.setenv("DASKLAB_INVENTORY", "i/hosts.yml")
        monkeypatch.setenv("DASKLAB_RESULTS", "r")
        words = []
    else:
        words = ["-i", "i/hosts.yml", "--results", "r"]
    shown = json.loads(CliRunner().invoke(show, [*words, "--file", "f"]).stdout)
    assert shown == [str(tmp_path / name) for name in ("i/hosts.yml", "r", "f")]


def test_results_are_in_the_labs_folder_or_in_one_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DASKLAB_RESULTS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert paths.results() == tmp_path / "data" / "dasklab" / "results"
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").touch()
    assert paths.results() == Path("results")
    monkeypatch.setenv("DASKLAB_RESULTS", "elsewhere")
    assert paths.results() == Path("elsewhere")


def test_every_path_option_is_absolute() -> None:
    """A plain click.Path would be relative to the working directory of whatever program reads it."""
    plain = [
        f"{' '.join(words)} {option.name}"
        for words, command in EVERY.items()
        for option in command.params
        if isinstance(option.type, click.Path)
        and not isinstance(option.type, UserPath)
        and words[0] != "wire"
    ]
    assert plain == []


def test_environment_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DASKLAB_STATE", "PROXMOX_CA_FILE"):
        monkeypatch.setenv(name, "here")
    monkeypatch.delenv("DASKLAB_CACHE", raising=False)
    make_environment_absolute()
    assert [os.environ.get(name) for name in ("DASKLAB_STATE", "PROXMOX_CA_FILE", "DASKLAB_CACHE")] == [
        str(tmp_path / "here"),
        str(tmp_path / "here"),
        None,
    ]


@pytest.mark.parametrize("kind", [OutputFile(), OutputFolder()])
@pytest.mark.parametrize("place", ["/proc/nowhere/out", "file/out"])
def test_unwritable_output_is_refused(
    kind: UserPath, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="cannot be written"):
        kind.convert(place, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writable_outputs_are_accepted_and_not_created(tmp_path: Path) -> None:
    assert OutputFile().convert(str(tmp_path / "new.json"), None, None) == tmp_path / "new.json"
    assert OutputFolder().convert(str(tmp_path / "a" / "b"), None, None) == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


OUTPUTS = [
    ("explain", "{tmp}", "--trace", "/proc/nowhere/t.json"),
    ("explain", "{tmp}", "--profile", "{tmp}"),
    ("report", "{tmp}", "-o", "/proc/nowhere"),
    ("results", "export", "{tmp}", "/proc/nowhere/a.csv"),
    ("history", "publish", "/proc/nowhere"),
    ("run", "baseline", "--results", "/proc/nowhere"),
    ("wire", "{capture}", "--parquet", "/proc/nowhere"),
]


@pytest.mark.parametrize("words", OUTPUTS, ids=" ".join)
def test_unwritable_output_is_refused_before_the_work(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("the work was started")

    capture = ROOT / "tests" / "data" / "wire" / "g3-2026.8.0.pcap.gz"
    monkeypatch.setattr("daskwire.terminal.cli.open_files", worked)
    monkeypatch.setattr(explaining, "_print_trial", worked)
    result = run(*(word.format(tmp=tmp_path, capture=capture) for word in words))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith(("dasklab: ", "daskwire: "))
    assert words[-1].format(tmp=tmp_path) in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--nix"], "dasklab: No such option '--nix'."),
        (["pln"], "dasklab: No such command 'pln'. Did you mean plan?"),
        (["run", "--seed", "x"], "dasklab: Invalid value for '--seed': 'x' is not a valid integer."),
        (["results", "show"], "dasklab: Missing argument 'RUN'."),
        (["wire", "summry"], "daskwire: summry: no such file or command; did you mean summary?"),
    ],
)
def test_usage_errors_start_with_the_programs_name(words: list[str], line: str) -> None:
    assert run(*words).stderr.splitlines()[0] == line


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_removes_colours_from_errors(no_color: str, coloured: bool) -> None:
    """Checked on a terminal, because click ignores NO_COLOR."""
    words = [sys.executable, "-m", "dasklab", "plan", "-i", "/nowhere.yml"]
    leader, follower = os.openpty()
    environment = os.environ | {"NO_COLOR": no_color, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, stderr=follower, stdout=follower, env=environment, check=False)
    shown = os.read(leader, 10_000).decode()
    os.close(leader)
    os.close(follower)
    assert "dasklab: inventory /nowhere.yml does not exist" in shown
    assert ("\x1b[" in shown) is coloured


def test_no_color_reaches_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with main.make_context("dasklab", ["status"]) as context:
        assert click.Context(EVERY[("status",)], parent=context).color is False
