"""The command that repeats a cell works: for an experiment of dasklab, and for one of a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.model.experiments import experiment
from dasklab.model.settings.simulated import SimulatedSetup
from dasklab.report.pages.trials_screen import repeat_words
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab


@pytest.mark.parametrize(
    ("quick", "words"), [(True, "delay_worker --quick --only"), (False, "delay_worker --only")]
)
def test_experiment_of_dasklab_is_named(tmp_path: Path, quick: bool, words: str) -> None:
    name, content = experiment.load("delay_worker", quick)
    run = driver.start(tmp_path, name, content, SETUP, quick=quick).stored.folder
    assert repeat_words(Run(run)) == f"dasklab run {words}"
    setup = SETUP.model_copy(update={"simulated": SimulatedSetup(origin="my runs/x", workloads=(), seeds=1)})
    simulated = driver.start(tmp_path / "simulated", name, content, setup, quick=quick).stored.folder
    assert repeat_words(Run(simulated)).endswith("--simulate --from 'my runs/x' --only")


def test_experiment_of_a_file_is_repeated_from_its_run(
    measured: Callable[..., driver.ActiveRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(FakeLab(), "slow").stored.folder
    command = f"{repeat_words(Run(run))} delay_ms=50"
    repeated: list[tuple[str, str]] = []

    def measure(*words: Any, **_: object) -> Run:
        repeated.append((words[2], words[5]["only"]))
        return Run(run)

    monkeypatch.setattr(sys.modules["dasklab.commands.run"], "_measure", measure)
    printed = CliRunner().invoke(main, shlex.split(command)[1:])
    assert printed.exit_code == 0, printed.output
    assert repeated == [("slow", "delay_ms=50")]
