"""A run of somebody else is data: what it carries is executed only if the user trusts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from dasklab import paths
from dasklab.cli import main
from dasklab.console.trust import cells_of
from dasklab.errors import LabError
from dasklab.model.experiments import experiment, foreign_code
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.foreign_code import code_of
from dasklab.model.settings.trial_settings import Settings, Workload
from dasklab.model.settings.variants import Scheduler
from dasklab.predict.engine import processes
from dasklab.results import pack
from dasklab.running.driver import driver

from tests import waiting
from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.sim.samples import scenario
from tests.unit.dasklab.stored_run import previous_run

OWN = (paths.WORKLOADS / "array_study.py").read_text()


@pytest.fixture(autouse=True)
def _nothing_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(foreign_code, "_trusted", set())


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that the source of the foreign workload writes."""
    return tmp_path / "executed"


@pytest.fixture
def foreign(marker: Path) -> str:
    return f"# \x1b]0;title\x07\n{OWN}\nopen({str(marker)!r}, 'w')\n"


@pytest.fixture
def policies(marker: Path) -> dict[str, Any]:
    """A setting of Dask's: its scheduler makes these policies, whatever they are."""
    value = [{"class": "subprocess.Popen", "args": ["touch", str(marker)]}]
    return {"distributed": {"scheduler": {"active-memory-manager": {"policies": value}}}}


@pytest.fixture(params=["source", "setting", "variant's setting"])
def run_folder(
    tmp_path: Path, request: pytest.FixtureRequest, foreign: str, policies: dict[str, Any]
) -> Path:
    """A measured run that carries or names code."""
    folder = previous_run(tmp_path / "results")
    for file in (folder / "experiment.json", *folder.glob("*/trial.json")):
        content = json.loads(file.read_text())
        place = content["experiment"] if file.name == "experiment.json" else content
        if request.param == "source":
            place["workload"] = (place.get("workload") or {}) | {"name": "foreign", "source": foreign}
        elif request.param == "setting":
            place["dask"] = policies
        elif file.name == "trial.json":
            content["resolved_scheduler"]["settings"] = policies
        file.write_text(json.dumps(content))
    return folder


def dasklab(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    "command",
    [
        "whatif RUN",
        "run RUN --only baseline",
        "run RUN --only baseline --simulate",
        "run FILE --simulate --from RUN",
    ],
)
def test_no_command_executes_what_a_run_carries(
    command: str, run_folder: Path, marker: Path, tmp_path: Path
) -> None:
    """FILE is an experiment of the user's own."""
    workload = "workload: {name: array_study, params: {size: 1000, chunk: 500}}"
    (tmp_path / "own.yml").write_text(f"title: t\nquestion: q\nmetrics: {{compute_s: ~}}\n{workload}\n")
    words = {"RUN": run_folder, "FILE": tmp_path / "own.yml"}
    result = dasklab(*(words.get(word, word) for word in command.split()))
    assert result.exit_code == 1 and not marker.exists()
    assert str(run_folder) in result.stderr and "\x1b]" not in result.stderr
    has_source = "foreign" in (run_folder / "experiment.json").read_text()
    if has_source and "FILE" in command:
        assert "no measured trial shows the costs of array_study" in result.stderr
    else:
        assert "--trust-source" in result.stderr
        assert (r"# \u001b]0;title\u0007" in result.stderr) == has_source


def test_code_of_a_packed_run_is_not_executed_even_if_it_is_trusted(run_folder: Path, marker: Path) -> None:
    unpacked = pack.unpack(pack.pack(run_folder, run_folder.with_suffix(".zip")))
    result = dasklab("whatif", unpacked, "--trust-source")
    assert result.exit_code == 1 and not marker.exists()
    assert "in a packed run, and is never executed" in result.stderr


def test_trusted_settings_are_used(policies: dict[str, Any], marker: Path) -> None:
    """Dask executes these: else the tests above prove nothing."""
    with pytest.raises(LabError, match="ActiveMemoryManagerPolicy"):
        processes.simulate(scenario(dask=policies))
    waiting.until(marker.exists, "the program that the setting names")


def test_simulator_refuses_untrusted_source(foreign: str) -> None:
    with pytest.raises(LabError, match="--trust-source"):
        processes.simulate(scenario(workload={"name": "foreign", "source": foreign}))


@pytest.mark.parametrize(
    "change",
    [
        {"workload": Workload(name="foreign", source=f"{OWN}\n")},
        {"dask": {"distributed": {"client": {"security-loader": "evil.loader"}}}},
        {"scheduler": Scheduler(command="/tmp/evil")},
    ],
)
def test_lab_refuses_what_is_not_trusted(change: dict[str, Any], tmp_path: Path, sweep: Experiment) -> None:
    content = sweep.model_copy(update=change)
    lab = FakeLab()
    active = driver.start(tmp_path / "results", "sweep", content, SETUP, quick=False)
    with pytest.raises(LabError, match="--trust-source"):
        driver.execute(active, lab, lambda trial, state: None)
    assert not lab.ran


def test_trusted_source_is_executed_and_stays_trusted(
    foreign: str, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = {"name": "foreign", "source": foreign, "params": {"size": 1000, "chunk": 500}}
    foreign_code.Code("a workload", foreign).trust()
    monkeypatch.setattr(foreign_code, "_trusted", set())  # as in the next command
    processes.simulate(scenario(workload=workload))
    assert marker.exists()


def test_what_comes_with_dasklab_needs_no_trust() -> None:
    """Its workloads, and each cell of its experiments."""
    assert not [*code_of(Settings(workload=Workload(name="renamed", source=OWN)))]
    for name in experiment.names():
        for quick in (False, True):
            for settings in cells_of(experiment.load(name, quick)[1]):
                assert not [*code_of(settings)], name


def test_simulation_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("yaml", "evil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working folder')\n")
    monkeypatch.chdir(tmp_path)
    processes.simulate(scenario())
    with pytest.raises(LabError, match="no workload 'evil'"):
        processes.simulate(scenario(workload={"name": "evil"}))
