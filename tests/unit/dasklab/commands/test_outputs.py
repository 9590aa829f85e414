"""What commands print with ``--json`` follows the published schema."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.model.forms.json_output import to_json
from dasklab.paths import SHARE as ROOT
from dasklab.results.statistics.interval import Interval

from docs.parts.outputs import schema


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one stored run, as if no capture had been requested."""
    folder = tmp_path_factory.mktemp("results")
    with tarfile.open(ROOT / "tests" / "data" / "run" / "baseline.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(folder / "baseline" / "stored")
    [file] = folder.rglob("trial.json")
    file.write_text(file.read_text().replace('"capture": true', '"capture": false'))
    return folder


def printed(command: str, *words: str) -> Any:
    """Return the document that a command prints, which follows the published schema."""
    result = CliRunner().invoke(main, [*command.split(), *words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    jsonschema.validate(document, schema()[command])
    return document


def test_missing_ends_of_an_interval_are_null() -> None:
    assert json.loads(to_json([Interval(2.0)], list[Interval])) == [{"value": 2.0, "low": None, "high": None}]


def test_runs_are_listed(results: Path) -> None:
    [row] = printed("results", "--results", str(results))
    assert row.pop("run").startswith(str(results))
    assert row == {"quick": True, "planned": 1, "finished": 1, "ok": 1, "accelerator": "lxc"}


def test_run_is_shown(results: Path) -> None:
    [run] = (path.parent for path in results.rglob("experiment.json"))
    shown = printed("results show", str(run))
    [compute] = [metric for metric in shown["metrics"] if metric["metric"] == "compute_s"]
    [cell] = compute["cells"]
    assert list(cell) == ["cell", "factors", "n", "trials", "median", "difference", "ratio", "verdict"]
    assert (cell["cell"], cell["verdict"], cell["ratio"]["value"]) == ("baseline", "baseline", 1.0)
    assert shown["trials"] == {"ok": 1}


def test_run_is_compared_with_its_copy(results: Path, tmp_path: Path) -> None:
    [run] = (path.parent for path in results.rglob("experiment.json"))
    copy = shutil.copytree(run, tmp_path / "copy")
    rows = printed("results compare", str(run), str(copy), "--anyway")
    assert rows and {row["ratio"]["value"] for row in rows} <= {1, None}  # None: 0 of 0
    assert not any(row["is_shown"] for row in rows)


def test_steps_of_the_history_are_listed(results: Path, tmp_path: Path) -> None:
    [run] = (path.parent for path in results.rglob("experiment.json"))
    CliRunner().invoke(main, ["history", "--results", str(tmp_path), "add", str(run)], catch_exceptions=False)
    assert printed("history", "--results", str(tmp_path)) == []  # from a version to itself is no step


def test_hosts_are_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKLAB_INVENTORY", str(DEFAULT))
    hosts = printed("inspect")
    assert [host["groups"] for host in hosts][:2] == [["dask_client"], ["dask_scheduler"]]
    assert [len(host["nics"]) for host in hosts] == [3, 2, 2, 2, 2]
    table = CliRunner().invoke(main, ["inspect"]).output
    assert "virtio on vmbr1" in table and "root@10.77.0.11" in table


def test_option_of_the_group_is_refused_before_a_subcommand(results: Path) -> None:
    result = CliRunner().invoke(main, ["results", "--json", "show", str(results)])
    assert (result.exit_code, "--json belongs after `show`" in result.output) == (2, True)
