"""A run of somebody else is data: the source that it carries is executed only if the user trusts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dasklab import paths
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.settings import trusted_source
from dasklab.model.settings.trial_settings import Workload
from dasklab.predict.engine import processes
from dasklab.results import pack
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.sim.samples import scenario
from tests.unit.dasklab.stored_run import previous_run

OWN = (paths.WORKLOADS / "array_study.py").read_text()


@pytest.fixture(autouse=True)
def _nothing_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trusted_source, "_trusted", set())


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that the source of the foreign workload writes."""
    return tmp_path / "executed"


@pytest.fixture
def foreign(marker: Path) -> str:
    return f"# \x1b]0;title\x07\n{OWN}\nopen({str(marker)!r}, 'w')\n"


@pytest.fixture
def run_folder(tmp_path: Path, foreign: str) -> Path:
    """A measured run whose workload is not dasklab's."""
    folder = previous_run(tmp_path / "results")
    for file in (folder / "experiment.json", *folder.glob("*/trial.json")):
        content = json.loads(file.read_text())
        place = content.get("experiment", content) if file.name == "experiment.json" else content
        place["workload"] = (place.get("workload") or {}) | {"name": "foreign", "source": foreign}
        file.write_text(json.dumps(content))
    return folder


def dasklab(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("command", ["whatif RUN", "sensitivity RUN", "reproduce RUN baseline"])
def test_no_command_executes_the_source_that_a_run_carries(
    command: str, run_folder: Path, marker: Path
) -> None:
    result = dasklab(*(run_folder if word == "RUN" else word for word in command.split()))
    assert result.exit_code == 1 and not marker.exists()
    assert "--trust-source" in result.stderr and str(run_folder) in result.stderr
    assert r"# \x1b]0;title\x07" in result.stderr and "\x1b]" not in result.stderr


def test_source_of_a_packed_run_is_not_executed_even_if_it_is_trusted(run_folder: Path, marker: Path) -> None:
    unpacked = pack.unpack(pack.pack(run_folder, run_folder.with_suffix(".zip")))
    result = dasklab("whatif", unpacked, "--trust-source")
    assert result.exit_code == 1 and not marker.exists()
    assert "in a packed run, and is never executed" in result.stderr


def test_lab_and_simulator_refuse_untrusted_source(tmp_path: Path, sweep: Experiment, foreign: str) -> None:
    workload = Workload(name="foreign", source=foreign)
    with pytest.raises(LabError, match="--trust-source"):
        processes.simulate(scenario(workload=workload.model_dump()))
    content = sweep.model_copy(update={"workload": workload})
    lab = FakeLab()
    active = driver.start(tmp_path / "results", "sweep", content, SETUP, quick=False)
    with pytest.raises(LabError, match="--trust-source"):
        driver.execute(active, lab, lambda trial, state: None)
    assert not lab.ran


def test_trusted_source_is_executed_and_stays_trusted(
    foreign: str, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = {"name": "foreign", "source": foreign, "params": {"size": 1000, "chunk": 500}}
    trusted_source.trust(foreign)
    monkeypatch.setattr(trusted_source, "_trusted", set())  # as in the next command
    processes.simulate(scenario(workload=workload))
    assert marker.exists()


def test_source_of_dasklab_itself_needs_no_trust() -> None:
    trusted_source.require_trusted(Workload(name="renamed", source=OWN))


def test_simulation_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("yaml", "evil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working folder')\n")
    monkeypatch.chdir(tmp_path)
    processes.simulate(scenario())
    with pytest.raises(LabError, match="no workload 'evil'"):
        processes.simulate(scenario(workload={"name": "evil"}))
