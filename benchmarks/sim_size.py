"""How long large simulations take, and how much memory.

    python benchmarks/sim_size.py large [--workers 100] [--tasks 10000]
    python benchmarks/sim_size.py many [--count 40] [--tasks 500] [--workers 4]

``large`` simulates one program: layers of as many tasks as there are workers, of 0.1 s each, which need two
results of 100 kB of the layer before. ``many`` simulates a program of that form with so many seeds, in as
many processes as there are cores. Both print seconds, CPU seconds and the memory of the largest process.
"""

from __future__ import annotations

import random
import time
from argparse import Namespace

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "what": (("large", "many"), "simulations"),
            "--workers": (0, "100 of a large one, else 4"),
            "--tasks": (0, "100,000 of a large one, else 500"),
            "--count": (40, "of many"),
        },
        smallest="many --count 2 --tasks 50",
    )

from dasklab.predict.engine import processes
from dasklab.sim.costs import Costs
from dasklab.sim.program import ClientStep, Program, SentGraph
from dasklab.sim.scenario import Scenario

TASK_S, RESULT_BYTES = 0.1, 100_000
COSTS = Costs(op_s=2e-4, byte_s=0)


def layered(tasks: int, width: int) -> Program:
    """Return a program of so many tasks, in layers of a width."""
    dice = random.Random(0)
    needs = [
        tuple(sorted(dice.sample(range(key - key % width - width, key - key % width), 2)))
        if key >= width
        else ()
        for key in range(tasks)
    ]
    last = tuple(range(tasks - width, tasks))
    return Program(
        keys=tuple(f"layer{key // width}-{key % width}" for key in range(tasks)),
        needs=tuple(needs),
        works=(((0.0, TASK_S, RESULT_BYTES),),) * tasks,
        graphs=(SentGraph(tasks=tuple(range(tasks)), wanted_keys=last),),
        steps=(ClientStep(does="send"), ClientStep(does="wait", results=((0, len(last)),))),
    )


def scenario(program: Program, workers: int, seed: int) -> Scenario:
    return Scenario(
        workload=program,
        workers=workers,
        threads=1,
        repeats=1,
        warmups=0,
        rates_mbit=dict.fromkeys((f"worker-{number + 1}" for number in range(workers)), 1000.0),
        costs={"scheduler": COSTS, "worker": COSTS},
        seed=seed,
    )


def main(args: Namespace) -> None:
    large = args.what == "large"
    workers = args.workers or (100 if large else 4)
    tasks = args.tasks or (10_000 if large else 500)
    program = layered(tasks, min(workers, 100) if not large else workers)
    scenarios = [scenario(program, workers, seed) for seed in range(1 if large else args.count)]
    start = time.monotonic()
    outcomes = processes.simulate_all(scenarios)
    print(
        f"{len(scenarios)} x {workers} workers x {tasks} tasks: {time.monotonic() - start:.1f} s,"
        f" {sum(outcome.cpu_s for outcome in outcomes):.1f} s of CPU,"
        f" {max(outcome.memory_mb for outcome in outcomes):.0f} MB;"
        f" simulated {outcomes[0].repeats[0].duration_s:.1f} s"
    )


if __name__ == "__main__":
    main(ARGUMENTS)
