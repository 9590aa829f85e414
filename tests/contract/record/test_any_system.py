"""The doors that need no lab work without what only POSIX or Linux has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main

from tests.unit.daskwire.build import DATA, GOLDEN

LAB_ONLY = ("dasklab.machines", "dasklab.running", "dasklab.__main__")
IMPORT_ALL = f"""
import tests.contract.record.any_system
import importlib, pkgutil, dasklab, daskwire
for package in (dasklab, daskwire):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith({LAB_ONLY}) and not module.name.rpartition(".")[2].startswith("_"):
            if ".workloads." not in module.name:
                importlib.import_module(module.name)
from dasklab.cli import main
main(["--help"])
"""
SPIN = """
import tests.contract.record.any_system
import sys, time
import dasklab
from distributed import Client, LocalCluster

def sleep(number):
    time.sleep(0.2)
    return number

options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "processes": False}
for folder in sys.argv[1:]:
    with LocalCluster(**options) as cluster, Client(cluster) as client, dasklab.record(client, folder):
        client.gather(client.map(sleep, range(8), pure=False))
"""
COMMAND = "import tests.contract.record.any_system, sys; from dasklab.cli import main; main()"
DECODE = "import tests.contract.record.any_system, sys; from daskwire.__main__ import main; main()"


def run(program: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    finished = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        env=os.environ | environment,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


def test_all_modules_but_those_of_the_lab_are_imported() -> None:
    assert "Explain and predict" in run(IMPORT_ALL)


def test_a_cluster_is_recorded_explained_checked_and_packed(tmp_path: Path) -> None:
    new, old = ([str(tmp_path / f"{side}{number}") for number in (1, 2)] for side in ("new", "old"))
    run(SPIN, *new, *old)
    explained = " ".join(run(COMMAND, "explain", new[0]).split())
    assert "wait for a CPU or for something outside of Dask" in explained
    assert "waiting for something outside of Dask" not in explained.replace("or for something", "")
    checked = run(COMMAND, "check", *new, "--against", old[0], "--against", old[1], "--slower", "500%")
    assert checked.startswith("not slower")
    run(COMMAND, "results", "pack", new[0], "--output", str(tmp_path / "new.zip"))
    assert (tmp_path / "new.zip").exists()


def test_a_capture_is_decoded() -> None:
    capture = str(DATA / f"{GOLDEN[0]}.pcap.gz")
    assert "get_data: receive" in run(DECODE, capture)


@pytest.mark.parametrize(("encoding", "columns"), [("ascii", "40"), ("cp1252", "80")])
def test_any_console_shows_an_explanation(encoding: str, columns: str, tmp_path: Path) -> None:
    record = Path(__file__).parents[2] / "data" / "records" / "no_graph_before"
    copy = str(shutil.copytree(record, tmp_path / "record"))
    explained = run(COMMAND, "explain", copy, PYTHONIOENCODING=encoding, COLUMNS=columns)
    assert "It took 9.09 s" in " ".join(explained.split())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_any_console_shows_a_capture(encoding: str) -> None:
    capture = str(DATA / f"{GOLDEN[0]}.pcap.gz")
    assert "get_data: receive" in run(DECODE, capture, PYTHONIOENCODING=encoding, COLUMNS="40")


def test_commands_of_the_lab_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    result = CliRunner().invoke(main, ["plan"])
    assert result.exit_code == 1
    assert "the lab needs Linux; this system is 'win32'" in result.output
