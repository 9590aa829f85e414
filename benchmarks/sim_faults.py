"""A search for hangs: one fault a seed, at a random moment of a small run in simulation; what became of it.

    python benchmarks/sim_faults.py --seeds 100                  # of each kind of fault
    python benchmarks/sim_faults.py --first 41 --seeds 1 cut     # one of them once more

Four workers of one thread on 1 Gbit/s, two runs of ``array_study`` in 16 chunks, 20 ms and 1 MB a task;
nothing is measured or calibrated. Of seed N worker, moment (within the first run) and length (a cut's 0.05 to
60 s, a restart's 0.05 to 5 s, their logarithms equally likely) are drawn from N, and N orders Dask's sets. A
run is slower than the median of those without a fault. What was not done in 300 s of virtual time hangs; what
Dask gave up with, or what one of its coroutines raised and nobody took, is an error. Both are told with their
seed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from random import Random
from statistics import median
from typing import Any

import numpy as np
from dasklab.errors import LabError
from dasklab.model.faults import Fault
from dasklab.model.files import Outcome
from dasklab.predict import farm
from dasklab.sim.scenario import Scenario

KINDS = ("kill", "restart", "cut")
WORKERS, WITHOUT = 4, 8  # machines; seeds without a fault
RUN_S = 1.0  # about what a run takes: faults come within
LENGTHS = {"cut": (0.05, 60.0), "restart": (0.05, 5.0)}
LIMIT_S = 300.0


@dataclass(frozen=True)
class Tried:
    """One simulation: its outcome, or why there is none."""

    seed: int
    fault: Fault | None
    outcome: Outcome | None
    error: str | None

    @property
    def seconds(self) -> float:
        """Of all runs."""
        return sum(run.duration_s for run in self.outcome.runs) if self.outcome else math.nan


def scenario(seed: int, fault: Fault | None) -> Scenario:
    """Four workers and one fault."""
    names = ["scheduler", *(f"worker-{number + 1}" for number in range(WORKERS))]
    asked: dict[str, Any] = {
        "workload": {"name": "array_study", "params": {"size": 1000, "chunk": 250}},
        "workers": WORKERS,
        "threads": 1,
        "runs": 2,
        "warmups": 0,
        "rates_mbit": dict.fromkeys(names, 1000.0),
        "tasks": {prefix: [(0.02, 0.0, 1_000_000)] for prefix in ("add", "mul", "random_sample")},
        "faults": [fault] if fault else [],
        "limit_s": LIMIT_S,
        "seed": seed,
    }
    return Scenario.model_validate(asked)


def drawn(kind: str, seed: int) -> Fault:
    """The fault of a seed."""
    dice = Random(f"{kind} {seed}")
    hosts = [f"worker-{number + 1}" for number in range(WORKERS)]
    fault: dict[str, Any] = {
        "host": dice.choice([*hosts, "scheduler"] if kind == "cut" else hosts),
        "does": kind,
        "at_s": round(dice.uniform(0, RUN_S), 3),
    }
    if kind in LENGTHS:
        low, high = map(math.log, LENGTHS[kind])
        fault["for_s"] = round(math.exp(dice.uniform(low, high)), 3)
    return Fault.model_validate(fault)


def tried(seed: int, fault: Fault | None) -> Tried:
    """One simulation, in a process of its own."""
    try:
        outcome = farm.simulate(scenario(seed, fault))
    except LabError as error:
        return Tried(seed, fault, None, str(error))
    return Tried(seed, fault, outcome, None if outcome.hung else outcome.failed)


def every(kinds: list[str], first: int, seeds: int) -> Iterator[tuple[int, Fault | None]]:
    """What is to be tried, those without a fault first."""
    yield from ((seed, None) for seed in range(WITHOUT))
    for kind in kinds:
        yield from ((seed, drawn(kind, seed)) for seed in range(first, first + seeds))


def row(kind: str, mine: list[Tried], usual_s: float) -> str:
    """Of one kind of fault, as Markdown."""
    hung = [one.seed for one in mine if one.outcome and one.outcome.hung]
    wrong = [one.seed for one in mine if one.error]
    slower = [one.seconds - usual_s for one in mine if one.outcome and not one.outcome.failed]
    tails = np.percentile(slower, [5, 50, 95]) if slower else [math.nan] * 3
    times = " | ".join(f"{seconds:.2f}" for seconds in tails)
    return f"| {kind} | {len(mine)} | {len(slower)} | {times} | {listed(hung)} | {listed(wrong)} |"


def listed(seeds: list[int]) -> str:
    """How many, and which."""
    return f"{len(seeds)}: {', '.join(map(str, seeds))}" if seeds else "0"


def main() -> None:
    """Try, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=20, help="of each kind (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed (default %(default)s)")
    args = parser.parse_args()
    kinds = args.kinds or list(KINDS)
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no fault {', '.join(sorted(unknown))}; allowed: {', '.join(KINDS)}")
    found: list[Tried] = []
    with ThreadPoolExecutor(cpu_count()) as pool:
        for one in pool.map(lambda asked: tried(*asked), every(kinds, args.first, args.seeds)):
            found.append(one)
            why = one.error or (one.outcome.failed if one.outcome else None)
            if one.fault and (why or args.seeds == 1):
                print(f"seed {one.seed}, {one.fault}: {why or f'{one.seconds:.3f} s'}", file=sys.stderr)
    usual_s = median(one.seconds for one in found if one.fault is None)
    print(f"without a fault {usual_s:.2f} s\n")
    print("| fault | seeds | done | slower by s (5 %) | median | 95 % | hung | error |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in kinds:
        print(row(kind, [one for one in found if one.fault and one.fault.does == kind], usual_s))


if __name__ == "__main__":
    main()
