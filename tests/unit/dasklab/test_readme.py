"""The README's steps, followed: each example is put where it says and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from dasklab.model import experiment
from dasklab.model.cells import cell_names
from dasklab.model.workloads import parameters

README = (experiment.EXPERIMENTS / "README.md").read_text()


def block(title: str) -> str:
    found = re.search(rf"## {title}\n.*?```\w+\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def changed(tmp_path: Path, name: str, after: str, line: str) -> experiment.Experiment:
    text = (experiment.EXPERIMENTS / f"{name}.yml").read_text()
    assert after in text
    path = tmp_path / f"{name}.yml"
    path.write_text(text.replace(after, after + line, 1))
    return experiment.load(str(path))[1]


def test_example_is_an_experiment(tmp_path: Path) -> None:
    path = tmp_path / "example.yml"
    path.write_text(re.search(r"```yaml\n(.*?)```", README, re.DOTALL)[1])
    assert len(cell_names(experiment.load(str(path))[1])) == 4


def test_another_nic(tmp_path: Path) -> None:
    assert "nic=VirtIO 5G" in cell_names(
        changed(tmp_path, "nic_matrix", "    levels:\n", block("Another NIC"))
    )


def test_another_factor(tmp_path: Path) -> None:
    crossed = cell_names(changed(tmp_path, "delay_scheduler", "factors:\n", block("Another factor")))
    assert len(crossed) == 14 and "rate_mbit=1000,delay_ms=200" in crossed


def test_another_scheduler(tmp_path: Path) -> None:
    crossed = cell_names(changed(tmp_path, "delay_scheduler", "factors:\n", block("Another scheduler")))
    assert len(crossed) == 14 and "scheduler=random,delay_ms=200" in crossed


def test_another_version_of_dask(tmp_path: Path) -> None:
    crossed = cell_names(changed(tmp_path, "delay_scheduler", "factors:\n", block("Another version of Dask")))
    assert len(crossed) == 21 and "dask=2024.8.0,delay_ms=200" in crossed


def test_processes_or_threads(tmp_path: Path) -> None:
    crossed = cell_names(changed(tmp_path, "delay_scheduler", "factors:\n", block("Processes or threads")))
    assert len(crossed) == 21 and "layout=4x1,delay_ms=200" in crossed


def test_another_workload(tmp_path: Path) -> None:
    path = tmp_path / "absolute.py"
    path.write_text(block("Another workload"))
    assert parameters(path.read_text()) == ("tasks",)
