"""Dask's settings are honoured by the Dask that is simulated: those that advice is searched among."""

from __future__ import annotations

import pytest
from dasklab.model.experiment import merge
from dasklab.predict import advice, farm
from dasklab.predict.advice import Candidate

from tests.unit.dasklab.sim.samples import scenario

INCOMING = "distributed.worker.connections.incoming"
OUTGOING = "distributed.worker.connections.outgoing"
BYTES = "distributed.worker.transfer.message-bytes-limit"
BUSY = {  # small, and every setting matters: peers ask each other for several results at once
    "workers": 6,
    "workload": {"name": "array_study", "params": {"size": 1000, "chunk": 200}},
    "rates_mbit": {f"worker-{number}": 50.0 for number in range(1, 7)},
    "tasks": {
        "add": [(0.05, 0.0, 4_000_000)],
        "random_sample": [(0.02, 0.0, 4_000_000), (0.2, 0.0, 4_000_000)],
        "sum": [(0.05, 0.0, 4_000_000)],
    },
}
ON_WORKERS = (BYTES, INCOMING, OUTGOING, advice.BANDWIDTH)  # of light ones


@pytest.mark.parametrize("design", ["whole", "light"])
def test_each_setting_changes_what_the_simulated_dask_does(design: str) -> None:
    """The same seed does the same in every process: another digest is the Scheduler's or a Worker's doing."""
    now = scenario(**BUSY, design=design)
    every = {name: values[0] for name, values in advice.LEVELS.items()}
    every |= {INCOMING: 1, OUTGOING: 1, advice.BANDWIDTH: 600_000}
    asked = [(name, value) for name, value in every.items() if design == "whole" or name in ON_WORKERS]
    candidates = [Candidate((one,)) for one in asked]
    changed = [now.model_copy(update={"dask": merge({}, one.changes["dask"])}) for one in candidates]
    same, again, *digests = [one.digest for one in farm.simulate_all([now, now, *changed])]
    assert same == again
    idle = [one.name for one, digest in zip(candidates, digests, strict=True) if digest == same]
    assert idle == []
