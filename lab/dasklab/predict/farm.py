"""Many simulations, each in a process of its own, as many at once as there are cores."""

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
from dasklab.sim.scenario import Scenario

Process = subprocess.Popen[str]


@dataclass
class Running:
    """What is being simulated, for those who may have to end it; what comes too late is ended as it comes."""

    processes: set[Process] = field(default_factory=set)
    ended: bool = False

    def add(self, process: Process) -> None:
        """One that has just begun."""
        self.processes.add(process)
        if self.ended:
            process.kill()

    def end(self) -> None:
        """All of them, and those that a thread is just beginning."""
        self.ended = True
        for process in self.processes.copy():
            process.kill()


def simulate(scenario: Scenario, running: Running | None = None) -> Outcome:
    """One simulation in a process of its own; its hash seed, which orders Dask's sets, is the scenario's.

    While it runs the process is in ``running``.

    Raises:
        LabError: it cannot be simulated.
    """
    running = running or Running()
    with subprocess.Popen(
        [sys.executable, "-m", "dasklab.sim"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": str(scenario.seed)},
    ) as process:
        running.add(process)
        try:
            told, errors = process.communicate(scenario.model_dump_json())
        finally:
            process.kill()  # of no effect where it has ended
            running.processes.discard(process)
    if process.returncode:
        raise LabError(f"simulation, seed {scenario.seed}: {_last_line(errors)}")
    return Outcome.model_validate_json(told)


def simulate_all(
    scenarios: Iterable[Scenario], told: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """All of them, in their order; ``told`` hears of each as it is done, in that order too.

    Whatever ends it early, Ctrl-C too, ends what is being simulated.
    """
    running = Running()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = []
        try:
            for outcome in pool.map(partial(simulate, running=running), scenarios):
                told(outcome)
                outcomes.append(outcome)
        except BaseException:
            running.end()
            raise
    return outcomes


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
