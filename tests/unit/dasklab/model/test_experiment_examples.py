"""The examples of README and how-to are followed: each one does what its text says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dasklab.model.experiments import experiment
from dasklab.model.experiments.cells import cell_names
from dasklab.model.settings.workloads import parameters

ROOT = Path(__file__).parents[4]
README = (experiment.EXPERIMENTS / "README.md").read_text()
HOW_TO = (ROOT / "docs" / "how-to" / "write-an-experiment.md").read_text()


def code(text: str, title: str = "") -> str:
    """Return the first block of code, or the first one below a heading."""
    match = re.search(rf"{f'## {title}' if title else ''}.*?```\w+\n(.*?)```", text, re.DOTALL)
    assert match is not None
    return match[1]


def insert(tmp_path: Path, name: str, after: str, line: str) -> list[str]:
    """Insert a line into an experiment's file, and return the names of its cells."""
    text = (experiment.EXPERIMENTS / f"{name}.yml").read_text()
    assert after in text
    path = tmp_path / f"{name}.yml"
    path.write_text(text.replace(after, after + line, 1))
    return cell_names(experiment.load(str(path))[1])


def test_example_of_the_readme_is_an_experiment(tmp_path: Path) -> None:
    path = tmp_path / "example.yml"
    path.write_text(code(README))
    assert len(cell_names(experiment.load(str(path))[1])) == 4


def test_another_nic_is_another_cell(tmp_path: Path) -> None:
    cells = insert(tmp_path, "nic_matrix", "    levels:\n", code(HOW_TO, "Another NIC"))
    assert "nic=VirtIO 5G" in cells


@pytest.mark.parametrize(
    ("title", "levels", "cell"),
    [
        ("Another factor", 2, "rate_mbit=1000,delay_ms=200"),
        ("Another kind of guest", 2, "kind=container,delay_ms=200"),
        ("One of Dask's settings", 2, "compression=lz4,delay_ms=200"),
        ("Another scheduler", 2, "scheduler=random,delay_ms=200"),
        ("Another version of Dask", 3, "dask=2024.8.0,delay_ms=200"),
        ("Processes or threads", 3, "layout=4x1,delay_ms=200"),
        ("Faults", 2, "fault=kill,delay_ms=200"),
    ],
)
def test_another_factor_multiplies_the_cells(tmp_path: Path, title: str, levels: int, cell: str) -> None:
    cells = insert(tmp_path, "delay_scheduler", "factors:\n", code(HOW_TO, title))
    assert len(cells) == 7 * levels and cell in cells


def test_engine_is_a_factor(tmp_path: Path) -> None:
    path = tmp_path / "example.yml"
    head = "title: T\nquestion: Q?\nmetrics: {compute_s: ~}\nworkload: {name: join}\nfactors:\n"
    path.write_text(head + code(HOW_TO, "Spark beside Dask"))
    assert cell_names(experiment.load(str(path))[1]) == ["engine=dask", "engine=spark"]


def test_another_workload_has_its_parameters() -> None:
    assert parameters(code(HOW_TO, "Another workload")) == ("tasks",)
