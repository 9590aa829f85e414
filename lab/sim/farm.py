"""Many simulations, each in a process of its own, as many at once as there are cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from lab.errors import LabError
from lab.model.files import Outcome
from lab.sim.scenario import Scenario


def simulate(scenario: Scenario) -> Outcome:
    """One simulation in a process of its own; its hash seed, which orders Dask's sets, is the scenario's.

    Raises:
        LabError: it cannot be simulated.
    """
    done = subprocess.run(
        [sys.executable, "-m", "lab.sim"],
        input=scenario.model_dump_json(),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": str(scenario.seed)},
    )
    if done.returncode:
        raise LabError(f"simulation, seed {scenario.seed}: {_last_line(done.stderr)}")
    return Outcome.model_validate_json(done.stdout)


def simulate_all(
    scenarios: Iterable[Scenario], told: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """All of them, in their order; ``told`` hears of each as it is done, in that order too."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = []
        for outcome in pool.map(simulate, scenarios):
            told(outcome)
            outcomes.append(outcome)
    return outcomes


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
