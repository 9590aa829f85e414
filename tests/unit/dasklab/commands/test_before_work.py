"""What cannot work here is refused before anything is started, in one line: doctor, plan, up, run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from dasklab.cli import main
from dasklab.commands import up
from dasklab.console.lab import guest_program, target
from dasklab.errors import LabError
from dasklab.machines.endpoint import presence
from dasklab.model.experiments import experiment
from dasklab.running.driver import driver
from dasklab.running.playbooks import playbook

from tests.unit.dasklab import checked_lab
from tests.unit.dasklab.checked_lab import NO_NETEM, NO_ROOT, OK
from tests.unit.dasklab.conftest import SETUP

START = driver.start
REFUSED = "delay_worker: delay_ms=50, delay_ms=200, delay_ms=100 cannot run here: this kernel has no netem;"


def run(inventory: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["-i", str(inventory), *words])


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def forbidden(*_: object, **__: object) -> int:
        raise AssertionError("nothing may be started")

    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(up, "run_endpoint_program", forbidden)
    monkeypatch.setattr(driver, "start", forbidden)
    monkeypatch.setattr(target, "require_machines", lambda *_: None)


def test_dry_run_marks_cells_without_netem_and_refuses(tmp_path: Path) -> None:
    result = run(checked_lab.create(tmp_path, NO_NETEM), "run", "delay_worker", "--quick", "--dry-run")
    assert result.exit_code == 1
    assert result.stdout.count(" unsupported") == 9
    assert result.stderr.startswith(f"dasklab: {REFUSED} use virtual machines\n")


def test_run_is_refused_at_once(tmp_path: Path) -> None:
    inventory = checked_lab.create(tmp_path, NO_NETEM)
    for words in ((), ("--skip-unsupported",)):  # only the baseline would remain, compared with nothing
        result = run(inventory, "run", "delay_worker", "--quick", *words)
        assert result.exit_code == 1
        assert REFUSED in result.stderr
    assert not (tmp_path / "results").exists()


def test_other_cells_run_on_request(tmp_path: Path) -> None:
    inventory = checked_lab.create(tmp_path, NO_NETEM)
    refused = run(inventory, "run", "rate_delay", "--dry-run")
    assert refused.stderr.endswith("to run the other 3 of 9 cells: --skip-unsupported\n")
    accepted = run(inventory, "run", "rate_delay", "--dry-run", "--skip-unsupported")
    assert (accepted.exit_code, accepted.stderr) == (0, "")


def test_kernel_of_virtual_machines_is_not_this_one(tmp_path: Path) -> None:
    inventory = checked_lab.create(tmp_path, NO_NETEM, "machines")
    assert run(inventory, "run", "delay_worker", "--dry-run").exit_code == 0
    assert not (tmp_path / "words").exists()


def test_plan_says_what_is_missing_after_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "run", lambda *_, **__: 0)
    result = run(checked_lab.create(tmp_path, NO_ROOT), "plan")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        1,
        "dasklab: this lab cannot run here: containers need root: use sudo",
    )


def test_up_is_refused_before_it_downloads(tmp_path: Path) -> None:
    result = run(checked_lab.create(tmp_path, NO_ROOT), "up")
    assert result.exit_code == 1
    assert result.stderr.endswith("dasklab: this lab cannot run here: containers need root: use sudo\n")


def test_doctor_counts_what_is_missing_here_and_starts_nothing(tmp_path: Path) -> None:
    result = run(checked_lab.create(tmp_path, NO_ROOT), "doctor")
    assert "FAIL  containers need root: use sudo\n" in result.stdout
    assert "\n1 problem. Fix them as described above, then: dasklab doctor\n" in result.stdout
    assert "Nothing is missing" not in result.stdout
    assert result.exit_code == 1
    assert not (tmp_path / "state").exists()


def test_doctor_lists_the_kind_of_this_lab_and_what_its_kernel_lacks(tmp_path: Path) -> None:
    output = run(checked_lab.create(tmp_path, NO_NETEM), "doctor").stdout
    assert "guests of kind vm" not in output
    assert "guests of kind container support 21 of" in output
    assert ": this kernel has no netem; use virtual machines\n" in output
    assert output.splitlines()[-1].startswith("Nothing is missing. To build the lab: dasklab up")


@pytest.mark.parametrize(
    ("stopped", "step"),
    [([], "The lab is running: dasklab status"), (["worker-2"], "To start worker-2: dasklab up")],
)
def test_doctor_knows_that_the_lab_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: list[str], step: str
) -> None:
    monkeypatch.setattr(presence, "require_endpoint", lambda *_: None)
    monkeypatch.setattr(presence, "stopped", lambda *_: stopped)
    monkeypatch.setattr("dasklab.machines.doctor.examine", lambda *_, **__: ())
    answers: dict[str, Any] = {
        "worker-1": {"differences": []},
        "worker-3": LabError("worker-3 does not answer"),
    }
    monkeypatch.setattr(
        guest_program,
        "call_each",
        lambda _, hosts, *__: [answers.get(host, {"differences": []}) for host in hosts],
    )
    inventory = checked_lab.create(tmp_path, OK)
    output = run(inventory, "doctor").stdout
    assert output.splitlines()[-1] == f"Nothing is missing. {step}"
    assert "note  the lab link was not checked: worker-3 does not answer\n" in output
    answers["worker-1"]["differences"].append("eth1 is down")
    result = run(inventory, "doctor")
    assert result.exit_code == 1
    assert "FAIL  worker-1: eth1 is down\n      dasklab tc worker-1 reset\n" in result.stdout


def test_resumed_run_says_that_its_workload_has_changed(tmp_path: Path) -> None:
    workload, file = tmp_path / "own.py", tmp_path / "mine.yml"
    workload.write_text("def prepare(client): ...\n")
    file.write_text("{title: t, question: q, metrics: {compute_s: ~}, workload: {name: own}, factors: {}}")
    name, content = experiment.load(str(file))
    folder = START(tmp_path, name, content, SETUP, quick=False).stored.folder
    inventory, note = checked_lab.create(tmp_path, OK), "note  own.py has changed; "
    assert note not in run(inventory, "run", str(folder), "--dry-run").stderr
    workload.write_text("def prepare(client): return None\n")
    assert note in run(inventory, "run", str(folder), "--dry-run").stderr
