"""Trials run by Ansible: deadlines, the cause of a failure, and one command at a time."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.commands import up
from dasklab.console.lab import target
from dasklab.errors import LabError
from dasklab.machines.endpoint import proxmox
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Failed
from dasklab.results.run import Trial
from dasklab.results.storage import documents
from dasklab.running.lock.lock import LabLock, lock_files
from dasklab.running.plan.trials import deadline_s, plan
from dasklab.running.playbooks import ansible_lab, playbook
from dasklab.running.playbooks.ansible_lab import AnsibleLab

from tests.unit.dasklab.conftest import SETUP
from tests.unit.dasklab.running.playbooks.test_orders import LAB

LOG = "2026-01-01 00:00:00,000 p=1 u=root n=ansible"


@pytest.fixture
def trial(tmp_path: Path, sweep: Experiment) -> RequestedTrial:
    """A planned trial; its trial.json is in ``tmp_path``."""
    trial = plan("x", sweep, SETUP)[0]
    documents.write(tmp_path, trial)
    return trial


@pytest.fixture
def lab_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts of the lab, instead of those of an inventory."""
    monkeypatch.setattr(AnsibleLab, "_lab", None)
    monkeypatch.setattr(ansible_lab, "lab_hosts", lambda _: LAB)


def log_of(*lines: str) -> str:
    return "".join(f"{LOG} INFO| {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (f"{LOG} INFO| Measure\n{LOG} ERROR| [ERROR]: YAML parsing failed: colons\nOrigin: x.yml\n",
         "[ERROR]: YAML parsing failed: colons"),
        (log_of("  FAILED  client: workload : Run the workload",
                "          Data could not be sent to remote host: Shared connection to 10.77.0.11 closed.",
                "   33.4s  workload : Run the workload: unreachable 1"),
         "client: workload : Run the workload: Data could not be sent to remote host: "
         "Shared connection to 10.77.0.11 closed."),
        (log_of("  FAILED  localhost: proxmox_vm : Bring", "          https://h: nothing listens there",
                "            is it running?", "    2.8s  proxmox_vm : Bring: failed 1"),
         "localhost: proxmox_vm : Bring: https://h: nothing listens there; is it running?"),
        (log_of("  FAILED  a: Reset", "    0.1s  Reset: failed 1"), "a: Reset"),
        ("", "ansible-playbook ended with 4"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("lab_hosts")
def test_cause_of_a_failure_comes_from_ansibles_log(
    log: str, cause: str, tmp_path: Path, trial: RequestedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ansible_lab.LOG).write_text(log)
    monkeypatch.setattr(playbook, "run", lambda *args, **options: 4)
    with pytest.raises(LabError) as raised:
        AnsibleLab(tmp_path).run_trial(Trial(tmp_path))
    assert raised.value.message == cause


@pytest.mark.usefixtures("lab_hosts")
def test_current_phase_follows_the_log(
    tmp_path: Path, trial: RequestedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [ansible_lab.current_phase(tmp_path)]

    def run(*args: object, **options: object) -> int:
        log = log_of("    0.3s  Resolve: ok 5")
        for done in ("changed 5", "changed 4  (about 0:03 left)", *["changed 5"] * 30):
            (tmp_path / ansible_lab.LOG).write_text(log)
            seen.append(ansible_lab.current_phase(tmp_path))
            log += log_of(f"    3.0s  Run phase 'run': {done}")
        return 4

    monkeypatch.setattr(playbook, "run", run)
    with pytest.raises(LabError):
        AnsibleLab(tmp_path).run_trial(Trial(tmp_path))
    assert seen[:3] == [None, "prepare", "probe-rtt-before"]
    assert seen[-1] == "collect"


def test_dead_endpoint_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    monkeypatch.setattr(proxmox, "PAUSES_S", ())
    account = {"user": "lab@pve", "token_id": "t", "token_secret": "s"}
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # without listen(), so that connections are refused
        facts = {"host": "127.0.0.1", "port": closed.getsockname()[1], "ca_file": ""}
        (tmp_path / "endpoint.json").write_text(json.dumps(facts))
        (tmp_path / "account.json").write_text(json.dumps(account))
        with pytest.raises(LabError, match="the local endpoint of lab 'dasklab' is not running"):
            AnsibleLab(DEFAULT).require_endpoint()


@pytest.mark.usefixtures("lab_hosts")
def test_reason_of_a_failed_trial_is_kept(
    tmp_path: Path, trial: RequestedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"task": "Run phase 'run'", "result": {"msg": "non-zero return code", "stderr": "tc: busy"}}

    def run(*args: object, **options: object) -> int:
        (tmp_path / "collected" / "failed-worker-1.json").write_text(json.dumps(report))
        return 2

    monkeypatch.setattr(playbook, "run", run)
    assert AnsibleLab(tmp_path).run_trial(Trial(tmp_path)) == 2
    failed = documents.require(Failed, tmp_path)
    assert (failed.status, failed.host) == ("failed", "worker-1")
    assert failed.reasons == ("worker-1: Run phase 'run': tc: busy",)


@pytest.mark.usefixtures("lab_hosts")
def test_hanging_trial_is_stopped_and_the_lab_reset(
    tmp_path: Path, trial: RequestedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {}

    def run(book: str, *args: object, limit_s: float, **options: object) -> int:
        limits[book] = limit_s
        if book == "trial.yml":
            raise playbook.PlaybookEndedError("trial.yml was ended")
        return 0

    monkeypatch.setattr(playbook, "run", run)
    with pytest.raises(LabError, match=r"trial\.yml was ended"):
        AnsibleLab(tmp_path).run_trial(Trial(tmp_path))
    assert list(limits) == ["trial.yml", "reset.yml"]
    assert limits["trial.yml"] == deadline_s(trial) > trial.ttl_s


def test_deadline_follows_from_the_clusters_time_to_live(trial: RequestedTrial) -> None:
    """Each separate run may take that long: capture, performance report, py-spy."""
    shorter = trial.model_copy(update={"ttl_s": trial.ttl_s - 100})
    captured = trial.model_copy(update={"capture": True, "py_spy": True})
    assert deadline_s(trial) - deadline_s(shorter) == 100
    assert deadline_s(captured) - deadline_s(trial) == 2 * trial.ttl_s


@pytest.mark.parametrize(
    "words", [("run", "delay_worker", "--quick"), ("up",), ("baseline",), ("destroy", "--yes")]
)
def test_second_command_on_the_same_lab_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with another inventory file of the same lab."""
    monkeypatch.setattr(target, "require_machines", lambda *_: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "state"))
    first, second = (
        shutil.copytree(DEFAULT.parent, tmp_path / name) / DEFAULT.name for name in ("first", "second")
    )
    results = ["--results", str(tmp_path / "results")] if words[0] != "destroy" else []
    lab = Inventory(first)
    lock = LabLock(lock_files(lab.hosts(), lab.optional))
    lock.acquire()
    monkeypatch.setattr(playbook, "run", lambda *args, **options: pytest.fail("a playbook was started"))
    monkeypatch.setattr(up, "run_endpoint_program", lambda *args: pytest.fail("a program was started"))
    refused = CliRunner().invoke(main, [*words, "-i", str(second), *results])
    lock.release()
    assert refused.exit_code == 1
    assert "dasklab: another command is using this lab: " in refused.output
    assert refused.stderr.startswith(f"Inventory {second}, endpoint local, not started yet, lab dasklab\n")
    assert not (tmp_path / "results").exists()
    assert not lock.acquire()
    lock.release()
