"""Run simulations, each in a process of its own: one per core of this machine, or on a Dask cluster."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.experiments.foreign_code import code_of_workload, require_trusted
from dasklab.model.files import Outcome
from dasklab.model.settings.trial_settings import Workload
from dasklab.paths import WORKLOADS
from dasklab.predict.engine import one_process
from dasklab.predict.engine.one_process import ProcessResult
from dasklab.records import read
from dasklab.sim.scenario import Scenario

PACKAGES = str(WORKLOADS.parents[1])


@dataclass(frozen=True)
class Engine:
    """Where simulations run.

    Attributes:
        executor: runs them.
        run: carries out one simulation there, given its scenario as JSON and its seed.
        outcomes: the folder of earlier outcomes, which are not simulated again; None: they are.
    """

    executor: Executor
    run: Callable[[str, int], ProcessResult]
    outcomes: Path | None = None

    def submit(self, scenario: Scenario) -> Future[ProcessResult]:
        """Start a simulation, or return the outcome that is kept."""
        file = self._file(scenario)
        if file and file.exists():
            future: Future[ProcessResult] = Future()
            future.set_result((0, file.read_text(encoding="utf-8"), ""))
            return future
        return self.executor.submit(self.run, scenario.model_dump_json(), scenario.seed)

    def keep(self, scenario: Scenario, outcome: Outcome) -> None:
        """Keep an outcome for the next time that the same is simulated."""
        if file := self._file(scenario):
            with atomic.replaced(file) as draft:
                draft.write_text(outcome.model_dump_json(), encoding="utf-8")

    def _file(self, scenario: Scenario) -> Path | None:
        name = hashlib.sha256(scenario.model_dump_json().encode()).hexdigest()
        return self.outcomes / f"{name}.json" if self.outcomes else None


ENGINE: ContextVar[Engine | None] = ContextVar("engine", default=None)
"""Where simulations run; None: in as many processes as this machine has cores."""


@contextmanager
def local_engine(outcomes: Path | None = None) -> Iterator[Engine]:
    """Run simulations on this machine. An exception (Ctrl-C, for example) kills those that are running."""
    stopped = Event()
    run = partial(one_process.run, packages=PACKAGES, is_cancelled=stopped.is_set)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            yield Engine(pool, run, outcomes)
        except BaseException:
            stopped.set()
            raise


def simulate(scenario: Scenario) -> Outcome:
    """Run one simulation and wait for it.

    Raises:
        LabError: the scenario cannot be simulated, or its workload's source is not trusted.
    """
    [outcome] = simulate_all([scenario])
    return outcome


def simulate_all(
    scenarios: Iterable[Scenario], on_outcome: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Run simulations in parallel; return their outcomes in the order of the scenarios.

    Args:
        scenarios: what to simulate. A scenario's seed is also its process's hash seed, which orders Dask's
            sets.
        on_outcome: called with each outcome, in that order too, as soon as it and all before it are there.

    Raises:
        LabError: a scenario cannot be simulated, or its workload's source is not trusted.

    An exception (Ctrl-C, for example) ends the simulations that are running.
    """
    scenarios = list(scenarios)
    for scenario in scenarios:
        if isinstance(scenario.workload, Workload):
            require_trusted(code_of_workload(scenario.workload))
    with ExitStack() as stack:
        engine = ENGINE.get() or stack.enter_context(local_engine())
        futures = [engine.submit(scenario) for scenario in scenarios]
        outcomes = []
        try:
            for scenario, future in zip(scenarios, futures, strict=True):
                outcome = _outcome(scenario, future.result())
                engine.keep(scenario, outcome)
                on_outcome(outcome)
                outcomes.append(outcome)
        finally:
            for future in futures:
                future.cancel()  # does nothing if it has ended
    return outcomes


def _outcome(scenario: Scenario, result: ProcessResult) -> Outcome:
    status, output, errors = result
    if status:
        what, reason = f"simulation, seed {scenario.seed}", _last_line(errors)
        if "Traceback" in errors:
            raise read.unexpected(what, reason, errors)
        raise LabError(f"{what}: {reason}")
    return Outcome.model_validate_json(output)


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "the process ended without a message"
