"""A driver that was killed leaves its playbook behind; the next one ends it before it starts again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.cli import main
from lab.commands import target
from lab.errors import LabError
from lab.machines.inventory import DEFAULT
from lab.running import ansible_lab, playbook
from tests.waiting import PATIENCE_S


def test_leftover_playbook_is_ended_and_its_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "1-01-trial"
    directory.mkdir()
    (directory / "trial.json").write_text("{}")
    (directory / "failed.json").write_text("{}")
    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN)"  # as whatever a script starts with &
    command = [
        sys.executable,
        "-c",
        f"{deaf}; print(1, flush=True); time.sleep(60)",
        "ansible-playbook",
        str(directory / "trial.json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as left:
        assert left.stdout is not None and left.stdout.readline()
        started = []

        def run(book: str, inventory: Path, extra: dict | None = None, **options: object) -> int:
            started.append((book, options.get("options", []), left.wait(PATIENCE_S)))
            return 0

        monkeypatch.setattr(playbook, "run", run)
        # A child of this very process stays a zombie until it is waited for; its command line is empty then.
        assert ansible_lab.AnsibleLab(tmp_path / "hosts.yml").run_trial(directory) == 0
    assert started == [("reset.yml", [], -15), ("trial.yml", [], -15)]
    assert [path.name for path in directory.iterdir()] == ["trial.json"]


def test_nothing_left_over_nothing_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trial.json").write_text("{}")
    (tmp_path / "kept.json").write_text("{}")
    (tmp_path / "failed.json").write_text("{}")
    monkeypatch.setattr(playbook, "run", lambda *args, **options: 2)
    assert ansible_lab.AnsibleLab(tmp_path).run_trial(tmp_path) == 2
    assert (tmp_path / "kept.json").exists()


def test_what_ansible_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "2026-01-01 00:00:00,000 p=1 u=root n=ansible"
    said = f"{log} INFO| Measure\n{log} ERROR| [ERROR]: YAML parsing failed: colons\nOrigin: x.yml\n"
    (tmp_path / "ansible.log").write_text(said)
    monkeypatch.setattr(playbook, "run", lambda *args, **options: 4)
    with pytest.raises(LabError, match=r"^\[ERROR\]: YAML parsing failed: colons$"):
        ansible_lab.AnsibleLab(tmp_path).run_trial(tmp_path)


@pytest.mark.parametrize(
    "words", [("run", "delay_worker", "--quick"), ("up",), ("baseline",), ("destroy", "--yes")]
)
def test_two_commands_do_not_change_a_lab_at_once(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "require_machines", lambda *_: None)
    inventory = shutil.copytree(DEFAULT.parent, tmp_path / "inventory") / DEFAULT.name
    results = ["--results", str(tmp_path / "results")] if words[0] != "destroy" else []
    with ansible_lab.alone(inventory):
        refused = CliRunner().invoke(main, [*words, "-i", str(inventory), *results])
    assert refused.exit_code == 1
    assert f"dasklab: another command is at work on the lab of {inventory}" in refused.output
    assert refused.stderr.startswith(f"Inventory {inventory}, endpoint local, not started yet, lab dasklab\n")
    assert not (tmp_path / "results").exists()
    with ansible_lab.alone(inventory):
        pass
