"""What `dasklab up` ends with: one sentence with titles instead of names of metrics, and the next command."""

from __future__ import annotations

import pandas as pd
import pytest
from dasklab.console.trials import baseline_run
from dasklab.model.experiments import experiment
from dasklab.model.experiments.cells import cells
from dasklab.model.experiments.trial import Setup
from dasklab.model.settings.hosts import host_names
from dasklab.running.plan import trials


def test_baseline_is_one_sentence() -> None:
    values: dict[str, list[float]] = {
        "compute_s": [3.46, 3.55, 3.35],
        "throughput_mbit": [1912],
        "rtt_ms": [2.31],
        "drop_events": [0],
    }
    sentence = baseline_run.sentence({name: pd.Series(numbers) for name, numbers in values.items()})
    assert sentence == (
        "Baseline: 3.46 s to compute (3.35 to 3.55 in 3 repeats);"
        " links 1.91 Gbit/s; RTT 2.31 ms; nothing dropped."
    )


def test_drops_are_counted() -> None:
    series = {"compute_s": pd.Series([0.4]), "drop_events": pd.Series([2, 1])}
    assert baseline_run.sentence(series).endswith("(0.400 to 0.400 in 1 repeat); 3 frames dropped.")


@pytest.mark.parametrize(("workers", "used"), [(1, 1), (2, 2), (3, 3), (12, 3)])
def test_a_small_lab_has_a_baseline_of_all_its_workers(workers: int, used: int) -> None:
    _, content = experiment.load("baseline", quick=True)
    setup = Setup(hosts=tuple(host_names(workers)))
    fitting = baseline_run.fitting(content, setup)
    assert fitting.shared()["workers"] == used
    [cell] = cells(fitting)
    assert trials.requested("baseline", fitting, cell).workers == used
