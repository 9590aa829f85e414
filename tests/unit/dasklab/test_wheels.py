"""Packages that a trial needs are downloaded once, with the pins as constraints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dasklab import wheels
from dasklab.errors import LabError
from dasklab.model.settings import packages
from dasklab.spark import settings

PINNED, OLD = packages.pins()["dask"], "2024.8.0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path))
    return tmp_path


def test_pinned_packages_are_not_downloaded() -> None:
    resolved = {**packages.pins(), "dask": OLD, "distributed": OLD, "urllib3": "2.8.0"}
    assert wheels.not_pinned(resolved) == {"dask": OLD, "distributed": OLD, "urllib3": "2.8.0"}


def fake_pip(monkeypatch: pytest.MonkeyPatch, stderr: str = "") -> list[list[str]]:
    """Replace pip by one that resolves to dask, or fails; return the commands that it gets."""
    commands: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(words)
        if "--report" in words:
            install = [{"metadata": {"name": "dask", "version": OLD}}]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": install}))
        else:
            folder = Path(words[words.index("--dest") + 1])
            folder.mkdir()
            (folder / "dask.whl").touch()
        return subprocess.CompletedProcess(words, bool(stderr), "", stderr)

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return commands


def test_wheels_are_downloaded_once_with_the_other_pins_as_constraints(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = fake_pip(monkeypatch)
    wheelhouse = wheels.fetch({"dask": OLD, "distributed": OLD})
    assert wheels.fetch({"distributed": OLD, "dask": OLD}) == wheelhouse
    assert wheels.wheelhouse({"dask": PINNED}) != wheelhouse
    assert [words[3] for words in commands] == ["install", "download"]
    assert f"dask=={OLD}" in commands[0] and f"tornado=={packages.pins()['tornado']}" in commands[0]
    assert sorted(path.name for path in wheelhouse.iterdir()) == ["dask.whl", "requirements.txt"]
    assert (wheelhouse / "requirements.txt").read_text() == f"dask=={OLD}\n"


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        (
            "(from versions: 1.0)\nERROR: No matching distribution found for dask==2",
            wheels.NoSuchPackagesError,
        ),
        ("  x (from versions: none)\nERROR: No matching distribution found for dask", LabError),
        ("ERROR: ResolutionImpossible: for help", wheels.NoSuchPackagesError),
        ("ERROR: HTTP error 503", LabError),
    ],
)
def test_missing_version_is_distinguished_from_an_unreachable_index(stderr: str, error: type) -> None:
    assert type(wheels.pip_error(stderr)) is error


def test_message_is_the_short_line_of_pip() -> None:
    """The other line names every version that ever existed."""
    stderr = "ERROR: Could not find a version (from versions: 0.7, 0.8)\n"
    stderr += "ERROR: No matching distribution found for dask==9"
    assert wheels.pip_error(stderr).message == "No matching distribution found for dask==9"


def test_missing_version_has_the_exit_status_of_an_unsupported_trial(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_pip(monkeypatch, "WARNING: x\nERROR: No matching distribution found for dask==2024.8.9")
    monkeypatch.setattr(wheels.sys, "argv", ["wheels", '{"dask": "2024.8.9"}'])
    with pytest.raises(SystemExit) as ended:
        wheels.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err == "No matching distribution found for dask==2024.8.9\n"


def test_wheel_of_pyspark_is_built_once_and_used_to_resolve_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def pip(words: list[str]) -> None:
        commands.append(words)
        if "--report" in words:
            install = [{"metadata": {"name": "pyspark", "version": settings.PYSPARK_VERSION}}]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": install}))
        elif "--dest" in words:
            Path(words[words.index("--dest") + 1]).mkdir()

    monkeypatch.setattr(wheels, "_pip", pip)
    wheelhouse = wheels.fetch({"pyspark": settings.PYSPARK_VERSION})
    assert (wheelhouse / "requirements.txt").read_text() == f"pyspark=={settings.PYSPARK_VERSION}\n"
    build, *others = commands
    assert build[2] == "wheel" and build[-1] == f"pyspark=={settings.PYSPARK_VERSION}"
    folder = build[build.index("--wheel-dir") + 1]
    assert [words[words.index("--find-links") + 1] for words in others] == [folder, folder]
    assert wheels.fetch({"pyspark": settings.PYSPARK_VERSION}) == wheelhouse and len(commands) == 3
