"""Search for hangs: simulate a small run with one fault at a random moment, for many seeds.

    python benchmarks/sim_faults.py --seeds 100                  # of each kind of fault
    python benchmarks/sim_faults.py --first 41 --seeds 1 cut     # repeat one of them
    python benchmarks/sim_faults.py --on tcp://10.0.0.2:8786     # on a Dask cluster

Four workers of one thread on 1 Gbit/s execute two repeats of ``array_study`` in 16 chunks, with 20 ms and 1
MB per task; nothing is measured or calibrated. The seed determines the worker, the moment (within the first
run), the length (0.05 to 60 s for a cut, 0.05 to 5 s for a restart, uniform in the logarithm) and the order
of Dask's sets.

The table shows by how much repeats are slower than the median without a fault. A simulation that does not
finish within 300 s of virtual time hangs. It ends in an error if Dask raises one, or if a coroutine of Dask
raises an exception that nobody retrieves. Hangs and errors are listed with their seeds.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from os import cpu_count
from random import Random
from statistics import median
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "kinds": ([str], "kinds of faults: kill, restart, cut; all if none is named"),
            "--seeds": (20, "seeds of each kind"),
            "--first": (0, "first seed"),
            "--on": (str, "simulate on this Dask cluster: tcp://10.0.0.2:8786"),
        },
        smallest="--seeds 1",
    )

import numpy as np
from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.model.settings.faults import Fault
from dasklab.predict.engine import processes
from dasklab.predict.engine.choice import simulations_on
from dasklab.sim.scenario import Scenario

KINDS = ("kill", "restart", "cut")
WORKERS = 4
SEEDS_WITHOUT_FAULT = 8
RUN_S = 1.0  # a run takes about this long, and faults begin within it
LENGTHS_S = {"cut": (0.05, 60.0), "restart": (0.05, 5.0)}
LIMIT_S = 300.0
AT_ONCE = 100  # simulations on a cluster, whose workers have fewer threads


@dataclass(frozen=True)
class Attempt:
    """One simulation: its outcome, or the error that prevented one."""

    seed: int
    fault: Fault | None
    outcome: Outcome | None
    error: str | None

    @property
    def seconds(self) -> float:
        """Virtual time of all repeats together."""
        return sum(repeat.duration_s for repeat in self.outcome.repeats) if self.outcome else math.nan

    @property
    def problem(self) -> str | None:
        """Why the simulation did not complete, if it did not."""
        return self.error or (self.outcome.failed if self.outcome else None)


def worker_names() -> list[str]:
    return [f"worker-{number + 1}" for number in range(WORKERS)]


def scenario(seed: int, fault: Fault | None) -> Scenario:
    """Return the small run with one fault, or without."""
    settings: dict[str, Any] = {
        "workload": {"name": "array_study", "params": {"size": 1000, "chunk": 250}},
        "workers": WORKERS,
        "threads": 1,
        "repeats": 2,
        "warmups": 0,
        "rates_mbit": dict.fromkeys(["scheduler", *worker_names()], 1000.0),
        "tasks": {prefix: [(0.02, 0.0, 1_000_000)] for prefix in ("add", "mul", "random_sample")},
        "faults": [fault] if fault else [],
        "limit_s": LIMIT_S,
        "seed": seed,
    }
    return Scenario.model_validate(settings)


def draw_fault(kind: str, seed: int) -> Fault:
    """Draw host, moment and length of a fault from its seed."""
    dice = Random(f"{kind} {seed}")
    hosts = worker_names()
    fault: dict[str, Any] = {
        "host": dice.choice([*hosts, "scheduler"] if kind == "cut" else hosts),
        "does": kind,
        "at_s": round(dice.uniform(0, RUN_S), 3),
    }
    if kind in LENGTHS_S:
        low, high = map(math.log, LENGTHS_S[kind])
        fault["for_s"] = round(math.exp(dice.uniform(low, high)), 3)
    return Fault.model_validate(fault)


def attempt(seed: int, fault: Fault | None) -> Attempt:
    """Run one simulation in a process of its own."""
    try:
        outcome = processes.simulate(scenario(seed, fault))
    except LabError as error:
        return Attempt(seed, fault, None, str(error))
    return Attempt(seed, fault, outcome, None if outcome.hung else outcome.failed)


def plan(kinds: list[str], first: int, seeds: int) -> Iterator[tuple[int, Fault | None]]:
    """Yield seeds and faults, those without a fault first."""
    yield from ((seed, None) for seed in range(SEEDS_WITHOUT_FAULT))
    for kind in kinds:
        yield from ((seed, draw_fault(kind, seed)) for seed in range(first, first + seeds))


def row(kind: str, attempts: list[Attempt], usual_s: float) -> str:
    """Return the table's row for one kind of fault, as Markdown."""
    hung = [attempt.seed for attempt in attempts if attempt.outcome and attempt.outcome.hung]
    errors = [attempt.seed for attempt in attempts if attempt.error]
    slower = [
        attempt.seconds - usual_s for attempt in attempts if attempt.outcome and not attempt.outcome.failed
    ]
    percentiles = np.percentile(slower, [5, 50, 95]) if slower else [math.nan] * 3
    times = " | ".join(f"{seconds:.2f}" for seconds in percentiles)
    return f"| {kind} | {len(attempts)} | {len(slower)} | {times} | {listed(hung)} | {listed(errors)} |"


def listed(seeds: list[int]) -> str:
    """Return the number of seeds and the seeds, ``2: 17, 23``."""
    return f"{len(seeds)}: {', '.join(map(str, seeds))}" if seeds else "0"


def main(args: Namespace) -> None:
    """Simulate all seeds and print a row per kind of fault."""
    kinds = chosen(args.kinds, KINDS)
    attempts: list[Attempt] = []
    with simulations_on(args.on), ThreadPoolExecutor(AT_ONCE if args.on else cpu_count()) as pool:
        # Each thread takes along where simulations run, which is known in this one
        calls = [(copy_context(), *entry) for entry in plan(kinds, args.first, args.seeds)]
        for result in pool.map(
            lambda context, *entry: context.run(attempt, *entry), *zip(*calls, strict=True)
        ):
            attempts.append(result)
            if result.fault and (result.problem or args.seeds == 1):
                text = result.problem or f"{result.seconds:.3f} s"
                print(f"seed {result.seed}, {result.fault}: {text}", file=sys.stderr)
    usual_s = median(attempt.seconds for attempt in attempts if attempt.fault is None)
    print(f"without a fault {usual_s:.2f} s\n")
    print("| fault | seeds | completed | slower by s (5 %) | median | 95 % | hung | error |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in kinds:
        of_kind = [attempt for attempt in attempts if attempt.fault and attempt.fault.does == kind]
        print(row(kind, of_kind, usual_s))


if __name__ == "__main__":
    main(ARGUMENTS)
