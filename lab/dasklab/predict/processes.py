"""Run simulations in processes of their own, as many at once as there are cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.model.settings.trial_settings import Workload
from dasklab.model.settings.trusted_source import require_trusted
from dasklab.paths import WORKLOADS
from dasklab.sim.scenario import Scenario


@dataclass
class SimulationProcesses:
    """The simulations that are running, so that all can be killed. Late starters are killed at once."""

    processes: set[subprocess.Popen[str]] = field(default_factory=set)
    stopping: bool = False

    def add(self, process: subprocess.Popen[str]) -> None:
        self.processes.add(process)
        if self.stopping:
            process.kill()

    def kill_all(self) -> None:
        self.stopping = True
        for process in self.processes.copy():
            process.kill()


def simulate(scenario: Scenario, processes: SimulationProcesses | None = None) -> Outcome:
    """Run one simulation and wait for it.

    Args:
        scenario: its seed is also the process's hash seed, which orders Dask's sets.
        processes: where to register the process while it runs.

    Raises:
        LabError: the scenario cannot be simulated, or its workload's source is not trusted.
    """
    if isinstance(scenario.workload, Workload):
        require_trusted(scenario.workload)
    processes = processes or SimulationProcesses()
    with subprocess.Popen(
        [sys.executable, "-m", "dasklab.sim"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=WORKLOADS,  # Python imports from the working folder first; the caller's may be a run
        env=os.environ | {"PYTHONHASHSEED": str(scenario.seed)},
    ) as process:
        processes.add(process)
        try:
            outcome, errors = process.communicate(scenario.model_dump_json())
        finally:
            process.kill()  # does nothing if the process has ended
            processes.processes.discard(process)
    if process.returncode:
        raise LabError(f"simulation, seed {scenario.seed}: {_last_line(errors)}")
    return Outcome.model_validate_json(outcome)


def simulate_all(
    scenarios: Iterable[Scenario], on_outcome: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Run simulations in parallel; return their outcomes in the order of the scenarios.

    Args:
        scenarios: what to simulate.
        on_outcome: called with each outcome, in that order too, as soon as it and all before it are there.

    An exception (Ctrl-C, for example) kills the simulations that are running.
    """
    processes = SimulationProcesses()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = []
        try:
            for outcome in pool.map(partial(simulate, processes=processes), scenarios):
                on_outcome(outcome)
                outcomes.append(outcome)
        except BaseException:
            processes.kill_all()
            raise
    return outcomes


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "the process ended without a message"
