"""The simulated Dask honours the settings that advice is searched among."""

from __future__ import annotations

import pytest
from dasklab.model.experiment import merge
from dasklab.predict import advice, farm
from dasklab.predict.advice import Candidate

from tests.unit.dasklab.sim.samples import scenario

INCOMING = "distributed.worker.connections.incoming"
OUTGOING = "distributed.worker.connections.outgoing"
BYTES = "distributed.worker.transfer.message-bytes-limit"
BUSY = {  # small, but every setting matters: workers fetch several results from each other at the same time
    "workers": 6,
    "workload": {"name": "array_study", "params": {"size": 1000, "chunk": 200}},
    "rates_mbit": {f"worker-{number}": 50.0 for number in range(1, 7)},
    "tasks": {
        "add": [(0.05, 0.0, 4_000_000)],
        "random_sample": [(0.02, 0.0, 4_000_000), (0.2, 0.0, 4_000_000)],
        "sum": [(0.05, 0.0, 4_000_000)],
    },
}
SETTINGS_OF_LIGHT_WORKERS = (BYTES, INCOMING, OUTGOING, advice.BANDWIDTH)


@pytest.mark.parametrize("design", ["whole", "light"])
def test_each_setting_changes_what_the_simulated_dask_does(design: str) -> None:
    """The same scenario gives the same digest, so a different digest is due to the setting."""
    unchanged = scenario(**BUSY, design=design)
    settings = {name: values[0] for name, values in advice.LEVELS.items()}
    settings |= {INCOMING: 1, OUTGOING: 1, advice.BANDWIDTH: 600_000}
    candidates = [
        Candidate(((name, value),))
        for name, value in settings.items()
        if design == "whole" or name in SETTINGS_OF_LIGHT_WORKERS
    ]
    changed = [
        unchanged.model_copy(update={"dask": merge({}, candidate.changes["dask"])})
        for candidate in candidates
    ]
    outcomes = farm.simulate_all([unchanged, unchanged, *changed])
    first, second, *digests = [outcome.digest for outcome in outcomes]
    assert first == second
    without_effect = [
        candidate.name for candidate, digest in zip(candidates, digests, strict=True) if digest == first
    ]
    assert without_effect == []
