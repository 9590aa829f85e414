"""A small scenario, changes to it, and one fault of each kind."""

from __future__ import annotations

from typing import Any

from dasklab.sim.scenario import Scenario

MACHINES = ("scheduler", "worker-1", "worker-2", "worker-3")
KILL = {"host": "worker-2", "does": "kill", "at_s": 0.05}
RESTART = {"host": "worker-2", "does": "restart", "at_s": 0.05, "for_s": 0.1}
CUT = {"host": "worker-1", "does": "cut", "at_s": 0.05, "for_s": 0.5}


def scenario(**changes: Any) -> Scenario:
    """Three workers on links of 1 Gbit/s; a task takes 1 ms and its result is 200 kB."""
    settings: dict[str, Any] = {
        "workload": {"name": "array_study", "params": {"size": 1000, "chunk": 500}},
        "workers": 3,
        "threads": 1,
        "repeats": 1,
        "warmups": 0,
        "rates_mbit": dict.fromkeys(MACHINES, 1000.0),
        "tasks": {"add": [(0.001, 0.0, 200_000)], "random_sample": [(0.001, 0.0, 200_000)]},
    }
    return Scenario.model_validate(settings | changes)
