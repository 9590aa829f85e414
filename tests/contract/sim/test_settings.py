"""The simulated Dask honours the settings that `whatif --set dask.*` takes."""

from __future__ import annotations

from dasklab.predict.engine import processes

from tests.unit.dasklab.sim.samples import scenario

SETTINGS = {
    "distributed.scheduler.bandwidth": 600_000,
    "distributed.worker.connections.incoming": 1,
    "distributed.worker.connections.outgoing": 1,
    "distributed.worker.transfer.message-bytes-limit": "5MB",
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.work-stealing-interval": "100ms",
    "distributed.scheduler.unknown-task-duration": "10ms",
}
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


def test_each_setting_changes_what_the_simulated_dask_does() -> None:
    """The same scenario gives the same digest, so a different digest is due to the setting."""
    unchanged = scenario(**BUSY)
    changed = [unchanged.model_copy(update={"dask": {name: value}}) for name, value in SETTINGS.items()]
    outcomes = processes.simulate_all([unchanged, unchanged, *changed])
    first, second, *digests = [outcome.digest for outcome in outcomes]
    assert first == second
    assert [name for name, digest in zip(SETTINGS, digests, strict=True) if digest == first] == []
