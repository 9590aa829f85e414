"""Runs with more blocks, by number or until intervals are narrow, and the wait for a quiet node."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.console.trials import progress
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.results import load
from dasklab.results.validity import verdict
from dasklab.running.driver import driver, more_blocks
from dasklab.running.driver.quiet_node import PATIENCE_S, RUN_PATIENCE_S, Waiter, outside_pct

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json


def silent(*_: object) -> None:
    """Ignore changes of trials."""


def test_more_blocks_keep_finished_trials(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    longer = more_blocks.extended(run, 3)
    assert run.opened_again().document.experiment["blocks"] == 2  # nothing is written yet
    more_blocks.record(longer)
    again, lab = driver.resume(run.opened_again(), SETUP), FakeLab()
    assert [trial.trial for trial in again.trials][: len(run.trials)] == [t.trial for t in run.trials]
    driver.execute(again, lab, silent)
    assert len(lab.ran) == 4 and all(name.startswith("3-") for name in lab.ran)
    assert set(load(run.stored.folder).block) == {1, 2, 3}
    with pytest.raises(LabError, match="it has 3 blocks already"):
        more_blocks.extended(again, 2)


def noisy(spread: float) -> Callable[[Json], float]:
    """Return durations that differ by up to this share."""
    return lambda trial: 4.0 * random.Random(trial["trial"]).uniform(1 - spread, 1 + spread)


@pytest.mark.parametrize(("spread", "blocks"), [(0.0, 4), (0.3, 6)])
def test_blocks_are_added_until_the_stop_rule_holds(
    tmp_path: Path, sweep: Experiment, spread: float, blocks: int
) -> None:
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    progress.execute_until(run, FakeLab(noisy(spread)), more_blocks.StopRule(0.1, max_blocks=6))
    assert run.opened_again().document.experiment["blocks"] == blocks
    assert set(load(run.stored.folder).block) == set(range(1, blocks + 1))


@pytest.mark.parametrize(("with_two_blocks", "narrow"), [(0.2, False), (0.09, True)])
def test_single_narrow_interval_is_not_enough(
    measured: Callable[..., driver.ActiveRun],
    monkeypatch: pytest.MonkeyPatch,
    with_two_blocks: float,
    narrow: bool,
) -> None:
    """An interval is narrowest when its noise is underestimated."""
    widths = {3: 0.09, 2: with_two_blocks}
    monkeypatch.setattr(more_blocks, "width", lambda frame, metrics: widths[int(frame.block.max())])
    run = more_blocks.extended(measured(FakeLab()), 3)
    more_blocks.record(run)
    driver.execute(run, FakeLab(), silent)
    assert more_blocks.is_narrow(run.opened_again(), 3, 0.1) == narrow


@pytest.mark.parametrize("share", ["0", "10x", "100%"])
def test_until_must_be_a_percentage(share: str) -> None:
    result = CliRunner().invoke(main, ["run", "delay_worker", "--until", share])
    assert result.exit_code == 2 and "is not a percentage between 0 and 100" in result.output


def test_disturbed_trial_is_repeated_and_invalid_trial_is_not(tmp_path: Path, sweep: Experiment) -> None:
    tries: dict[str, int] = {}

    def disturb(trial: Json, files: Json) -> int:
        name = trial["trial"]
        tries[name] = tries.get(name, 0) + 1
        busy = name.startswith("1-01") and tries[name] < 3
        node = files["hosts.json"]["hypervisor"]
        node["cpu"] = {"user_s": 90.0, "nice_s": 0.0, "system_s": 0.0, "idle_s": 10.0, "steal_s": 0.0}
        node["lab_cpu_s"] = 40.0 if busy else 85.0
        if name.startswith("2-01"):
            files["measured.json"]["rtt"] = []
            files.pop("configured.json")
        return 0

    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    waited: list[int] = []
    driver.execute(run, FakeLab(spoil=disturb), silent, lambda: waited.append(1))
    assert {name[:4]: count for name, count in tries.items() if count > 1} == {"1-01": 3}
    results = verdict.assess(run.opened_again())
    assert [result.status for name, result in results.items() if name.startswith("1-01")] == ["ok"]
    assert [result.status for name, result in results.items() if name.startswith("2-01")] == ["invalid"]
    assert len(waited) == 8 + 2  # before each trial, repeated ones too
    frame = load(run.stored.folder)
    assert set(frame.value[frame.metric == "node_foreign_pct"]) == {5.0}


def test_wait_for_a_busy_node_is_bounded() -> None:
    lines: list[str] = []
    slept: list[float] = []
    uses = iter([50.0, 30.0, 10.0])
    Waiter(lambda: next(uses), 15, lines.append, slept.append)()
    assert len(slept) == 2 and len(lines) == 1 and "use 50 % of the node's CPU" in lines[0]
    patient = Waiter(lambda: 90.0, 15, lines.append, slept.append)
    slept.clear()
    patient()
    assert sum(slept) == PATIENCE_S and lines[-1].startswith("The node is still busy")
    for _ in range(20):
        patient()
    assert sum(slept) == RUN_PATIENCE_S
    slept.clear()
    Waiter(lambda: None, 15, lines.append, slept.append)()
    Waiter(lambda: 99.0, 100, lines.append, slept.append)()
    assert slept == []


def test_load_of_the_labs_guests_is_not_foreign() -> None:
    node = {"cpu": 0.5, "cpuinfo": {"cpus": 4}}
    assert outside_pct(node, [{"cpu": 0.25, "cpus": 2}, {"cpu": 1.0, "cpus": 1}]) == pytest.approx(12.5)
    assert outside_pct(node, [{"cpu": None, "cpus": 2}]) == 50
    assert outside_pct(node, [{"cpu": 1.0, "cpus": 4}]) == 0


def test_undecided_run_suggests_more_blocks(
    measured: Callable[..., driver.ActiveRun],
) -> None:
    run = measured(FakeLab(noisy(0.35)))
    shown = CliRunner().invoke(main, ["results", "show", str(run.stored)], catch_exceptions=False).output
    assert "Not shown (delay_ms=50, delay_ms=200): only differences above" in shown.replace("\n", " ")
    assert "To run more (about " in shown.replace("\n", " ") and "--blocks" in shown.splitlines()[-1]


def test_files_without_cpu_counters_are_still_read(measured: Callable[..., driver.ActiveRun]) -> None:
    run = measured(FakeLab())
    for path in run.stored.folder.glob("*/hosts.json"):
        document = json.loads(path.read_text())
        document["hypervisor"] = {"name": "pve", "accel": "tcg", "cpu": None}
        path.write_text(json.dumps(document))
    assert not load(run.stored.folder).metric.eq("node_foreign_pct").any()
    assert {result.status for result in verdict.assess(run.opened_again()).values()} == {"ok"}
