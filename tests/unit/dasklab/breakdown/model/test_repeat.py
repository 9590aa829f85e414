"""What the columns of a repeat promise holds of stored records, and a broken promise is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial

from tests.unit.dasklab.breakdown.timelines import by_hand
from tests.unit.dasklab.stored_run import TRIAL, previous_run

RECORD = Path(__file__).parents[4] / "data" / "records" / "no_graph_before"


@pytest.mark.parametrize("kind", ["trial", "record"])
def test_promises_hold_of_what_is_stored(kind: str, tmp_path: Path) -> None:
    folder = previous_run(tmp_path) / TRIAL if kind == "trial" else RECORD
    repeats = explain(open_trial(folder)).repeats
    assert repeats
    for repeat in repeats:
        repeat.validate()


def test_a_broken_promise_is_named() -> None:
    repeat = by_hand()
    repeat.validate()
    with pytest.raises(ValueError, match="stop is not before start, but not here"):
        replace(repeat, stop=repeat.start - 1).validate()
    with pytest.raises(ValueError, match="keys are unique, but not here"):
        replace(repeat, keys=[repeat.keys[0]] * len(repeat.keys)).validate()
    stamps = {name: stamp[::-1] for name, stamp in repeat.tasks.stamps.items()}
    with pytest.raises(ValueError, match="tasks are sorted by start, but not here"):
        replace(repeat, tasks=replace(repeat.tasks, stamps=stamps)).validate()
