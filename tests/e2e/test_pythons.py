"""The wheel without extras on the oldest Python with the oldest Dask, and on the newest with today's."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import pytest
from dasklab.paths import SHARE as ROOT

from tests.e2e.installed import Installed

pytestmark = [pytest.mark.timeout(900)]
DATA = ROOT / "tests" / "data"
CAPTURE = DATA / "wire" / "p2p-2026.8.0.pcap.gz"
OLDEST, NEWEST = ("3.10", "==2024.8.*"), ("3.13", "")


def interpreter(version: str) -> str | None:
    """Return a Python of this version: one of pyenv's, or one on the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which(f"python{version}")


@pytest.fixture(scope="module", params=[OLDEST, NEWEST], ids=["oldest", "newest"])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    version, dask = request.param
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    packages = [f"dasklab @ {wheel.as_uri()}", f"dask{dask}", f"distributed{dask}"]
    return Installed.make(tmp_path_factory.mktemp("base"), packages, python)


@pytest.fixture(scope="module")
def trial(installed: Installed) -> Path:
    """A trial that an earlier version stored. It has no capture any more, as if none had been requested."""
    run = installed.folder / "run"
    with tarfile.open(DATA / "run" / "baseline.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(run)
    [file] = run.glob("*/trial.json")
    file.write_text(file.read_text().replace('"capture": true', '"capture": false'))
    return file.parent


def test_experiments_are_listed(installed: Installed) -> None:
    assert "delay_worker" in installed.good(installed.folder, "dasklab", "run")


def test_help_lists_all_commands(installed: Installed) -> None:
    for program in ("dasklab", "daskwire"):
        assert "Usage: " in installed.good(installed.folder, program, "--help")


def test_stored_trial_is_explained(installed: Installed, trial: Path) -> None:
    assert "computing" in installed.good(installed.folder, "dasklab", "explain", str(trial))


def test_change_is_predicted(installed: Installed, trial: Path) -> None:
    change = "links.worker-1.delay_ms=20"
    command = ["whatif", str(trial), "--set", change, "--seeds", "1"]
    done = installed.run(installed.folder, "dasklab", *command)
    if done.returncode:
        assert "predictions need Dask" in done.stdout and "Traceback" not in done.stdout
        assert "installed is 2024.8" in done.stdout
    else:
        assert f"simulated, {change}" in done.stdout


def test_capture_is_read_without_a_warning(installed: Installed) -> None:
    capture = shutil.copy(CAPTURE, installed.folder)
    printed = installed.good(installed.folder, "daskwire", str(capture), PYTHONWARNINGS="error")
    assert "scheduler" in printed


def test_missing_extra_is_one_line(installed: Installed) -> None:
    installed.good(installed.folder, "dasklab", "init", "mylab")
    done = installed.run(installed.folder / "mylab", "dasklab", "up")
    assert done.returncode == 1
    assert "pip install 'dasklab[lab]'" in done.stdout and "Traceback" not in done.stdout
