"""The typical value of samples, and of probes by node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from dasklab.results import load
from dasklab.results.statistics.theil_sen import slope
from dasklab.results.statistics.typical import by_node, typical
from dasklab.running.driver import driver
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.conftest import FakeLab, Json
from tests.unit.dasklab.results.trials import host

Measure = Callable[..., driver.ActiveRun]
NODES = {"scheduler": "pve", "worker-1": "pve2", "worker-2": "pve"}


def one_sample_per_trial(values: list[float]) -> pd.DataFrame:
    """Return a table in which each sample is a trial in a block of its own."""
    columns: Json = {"run": "r", "cell": "x", "null": False, "src": "", "dst": ""}
    return pd.DataFrame({"value": values, "block": range(len(values))}).assign(**columns)


@settings(max_examples=20, deadline=None)
@example([33.66227779186736] * 2)
@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=20))
def test_interval_contains_the_estimate(values: list[float]) -> None:
    result = typical(one_sample_per_trial(values))
    assert result.low <= result.value <= result.high


def test_one_trial_has_no_interval_however_many_runs_it_has() -> None:
    result = typical(one_sample_per_trial([1.0, 1.1, 0.9, 1.0, 1.05]).assign(block=1))
    assert result.value == 1.0 and np.isnan(result.low) and not result.excludes(0)


def test_slope_of_a_line() -> None:
    x = np.repeat([0.0, 1, 2, 3], 3)
    assert slope(x, 1 + 3 * x).value == pytest.approx(3)


def place_on_two_nodes(trial: Json, files: Json) -> int:
    for name, node in NODES.items():
        host(files, name)["node"] = node
    near = files["measured.json"]["rtt"][0] | {"dst": "worker-2", "samples_ms": [0.5] * 10}
    files["measured.json"]["rtt"].append(near)
    return 0


def test_each_row_has_the_nodes_of_its_hosts(measured: Measure) -> None:
    frame = load(measured(FakeLab(spoil=place_on_two_nodes)).stored.folder)
    nodes = frame[frame.metric == "rtt_ms"].groupby("dst").node.unique()
    assert (list(nodes["worker-1"]), list(nodes["worker-2"])) == (["pve pve2"], ["pve"])
    assert set(frame[frame.metric == "compute_s"].node) == {"pve pve2"}


def test_probes_are_divided_by_node(measured: Measure) -> None:
    rows = by_node(load(measured(FakeLab(spoil=place_on_two_nodes)).stored.folder), "rtt_ms")
    assert {node: n for node, (n, _) in rows.items()} == {"pve": 20, "pve pve2": 40}
    assert rows["pve"][1].value == 0.5 and rows["pve pve2"][1].value == pytest.approx(1.0, rel=0.01)


def test_lab_on_one_node_is_not_divided(measured: Measure) -> None:
    frame = load(measured(FakeLab()).stored.folder)
    assert set(frame.node) == {""} and by_node(frame, "rtt_ms") == {}
