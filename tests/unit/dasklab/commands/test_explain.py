"""`dasklab explain` refuses options that are for one trial where there are more, instead of ignoring them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main

from tests.unit.dasklab.stored_run import TRIAL, previous_run


@pytest.mark.parametrize(
    "words",
    [("--trace", "t.pftrace"), ("--profile", "p.json"), ("--operation", "1"), (".",)],
    ids=lambda w: w[0],
)
def test_option_for_one_trial_is_refused_for_a_run(words: tuple[str, ...], tmp_path: Path) -> None:
    run = previous_run(tmp_path)
    words = (str(run / TRIAL),) if words == (".",) else words
    result = CliRunner().invoke(main, ["explain", str(run), *words])
    assert result.exit_code == 2
    name = words[0] if words[0].startswith("--") else "a second TRIAL"
    assert f"a run of an experiment, and {name} is for one trial; name one alone" in result.output


@pytest.mark.parametrize("option", ["--trace", "--profile"])
def test_option_for_one_trial_is_refused_for_two(option: str, tmp_path: Path) -> None:
    trial, file = previous_run(tmp_path) / TRIAL, tmp_path / "out.pftrace"
    result = CliRunner().invoke(main, ["explain", str(trial), str(trial), option, str(file)])
    assert result.exit_code == 2
    assert f"two trials are compared, and {option} is for one trial" in result.output
    assert not file.exists()
