"""The end of `dasklab run`: exit status, cause of a failure, next command, missing cells."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from dasklab.cli import main
from dasklab.console.lab import target
from dasklab.console.trials import progress
from dasklab.console.trials.exit_status import MEANINGS
from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.model.experiments.experiment import Experiment
from dasklab.results.run import Trial

from tests.unit.dasklab.conftest import FakeLab, Json

Run = Callable[[FakeLab], Result]
DEAD = "localhost: proxmox_vm : Bring: https://127.0.0.1:1: nothing listens there (connection refused)"


@pytest.fixture
def dasklab_run(tmp_path: Path, sweep: Experiment, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the small sweep on a fake lab with the command."""
    file = tmp_path / "sweep.yml"
    file.write_text(yaml.safe_dump(sweep.model_dump(mode="json", exclude_unset=True)))
    monkeypatch.setattr(progress, "locked", lambda *_, **__: nullcontext())
    monkeypatch.setattr(progress, "_waiter", lambda *_: lambda: None)
    monkeypatch.setattr(target, "require_machines", lambda *_: None)

    def run(lab: FakeLab) -> Result:
        monkeypatch.setattr(progress, "AnsibleLab", lambda _: lab)
        words = ["run", str(file), "-i", str(DEFAULT), "--results", str(tmp_path / "results")]
        return CliRunner().invoke(main, words)

    return run


def lose(trial: Json, files: Json) -> int:
    """The endpoint does not answer in trials with a delay of 50 ms."""
    if trial["cell"] == "delay_ms=50":
        raise LabError(DEAD)
    return 0


def hold(trial: Json, files: Json) -> int:
    """A worker is stopped in runs with a delay of 50 ms."""
    if trial["cell"] == "delay_ms=50":
        pause = {"process": "worker-1", "lasted_s": 20.0, "cpu_s": 0.1, "waited_s": 0.0, "suspended_s": 0.0}
        files["timings.json"]["samples"][2]["pauses"] = [pause]
    return 0


def interrupt(trial: Json, files: Json) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("spoil", "status"), [(None, 0), (lose, 3), (hold, 4), (interrupt, 130)])
def test_exit_status_follows_from_the_trials(
    spoil: Callable[[Json, Json], int] | None, status: int, dasklab_run: Run
) -> None:
    result = dasklab_run(FakeLab(spoil=spoil) if spoil else FakeLab())
    assert result.exit_code == status, result.output


def test_help_documents_every_exit_status() -> None:
    text = CliRunner().invoke(main, ["run", "--help"]).output
    for status, meaning in MEANINGS.items():
        assert f"  {status:<4d} {meaning}" in text


def test_wrong_arguments_exit_with_2() -> None:
    assert CliRunner().invoke(main, ["run", "baseline", "--again"]).exit_code == 2


def test_failure_is_printed_with_cause_log_and_next_command(dasklab_run: Run, tmp_path: Path) -> None:
    class Logged(FakeLab):
        def run_trial(self, stored: Trial) -> int:
            (stored.folder / "ansible.log").write_text("")
            return super().run_trial(stored)

    printed = dasklab_run(Logged(spoil=lose)).output
    [run] = (tmp_path / "results").glob("*/*")
    assert f"    {DEAD}\n    Log: {run}/" in printed
    assert "/ansible.log\n" in printed
    assert "2 of 8 trials failed." in printed
    assert f"  To run the failed trials again: dasklab up && dasklab run {run}\n" in printed


def wrong(trial: Json, files: Json) -> int:
    """The workload's answer is wrong with a delay of 50 ms."""
    files["timings.json"]["check"] |= {"answer": 15.0, "ok": trial["cell"] != "delay_ms=50"}
    return 0


def fail(trial: Json, files: Json) -> int:
    """The workload fails with a delay of 50 ms."""
    if trial["cell"] != "delay_ms=50":
        return 0
    reasons = ["client: Run the workload: no memory"]
    files.clear()
    files["failed.json"] = {
        "schema": 4,
        "status": "failed",
        "host": "client",
        "task": "T",
        "reasons": reasons,
    }
    return 2


@pytest.mark.parametrize("spoil", [wrong, fail])
def test_failed_workload_does_not_suggest_dasklab_up(
    spoil: Callable[[Json, Json], int], dasklab_run: Run
) -> None:
    assert "To run the failed trials again: dasklab run " in dasklab_run(FakeLab(spoil=spoil)).output


@pytest.mark.parametrize(
    ("spoil", "rows"), [(lose, ["missing: 2 failed"] * 2), (hold, ["missing: 2 invalid"] * 2), (None, [])]
)
def test_cell_without_a_valid_trial_is_listed_as_missing(
    spoil: Callable[[Json, Json], int] | None, rows: list[str], dasklab_run: Run
) -> None:
    """Once in the table of each metric."""
    printed = dasklab_run(FakeLab(spoil=spoil) if spoil else FakeLab()).output
    assert re.findall(r"missing: \d+ \w+", printed) == rows, printed


def test_dead_endpoint_stops_the_run_with_one_line(dasklab_run: Run) -> None:
    class Dead(FakeLab):
        def require_endpoint(self) -> None:
            raise LabError("the local endpoint of lab 'dasklab' is not running", "to start it: dasklab up")

    def lost(trial: Json, files: Json) -> int:
        files.clear()
        return 4

    done = dasklab_run(Dead(spoil=lost))
    assert done.exit_code == 3
    assert "1 of 1 trial failed." in done.output
    lines = [line for line in done.output.splitlines() if line.startswith("dasklab: the run stopped after")]
    assert len(lines) == 1 and lines[0].endswith(": the local endpoint of lab 'dasklab' is not running")


def test_failed_reset_is_an_error(dasklab_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are printed anyway."""

    class Broken(FakeLab):
        def reset(self) -> None:
            raise LabError("the lab could not be reset")

    monkeypatch.setattr(progress.driver, "execute", _with_reset(progress.driver.execute))
    result = dasklab_run(Broken())
    assert result.exit_code == 1
    assert "To write the report: dasklab report" in result.output
    assert "dasklab: the lab could not be reset" in result.output


def _with_reset(execute: Callable[..., None]) -> Callable[..., None]:
    """Return the driver's function with a reset at the end."""

    def run(active: object, lab: FakeLab, *others: object) -> None:
        execute(active, lab, *others)
        lab.reset()

    return run
