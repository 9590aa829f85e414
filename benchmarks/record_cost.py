"""What `dasklab.record` costs a cluster while it records, and how much it stores.

    python benchmarks/record_cost.py [--rounds 30]

Two workers on this machine. Each round runs the same tasks three times in random order: ``off``, ``null``
(off again, which shows the noise) and ``on``. We compare wall time and the CPU time of client, scheduler and
workers as ratios within a round, and print their median with a bootstrap interval: for tasks that compute for
10 ms, and for empty ones. Attaching and detaching are not part of it.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {"--rounds": (30, "turns of each way"), "--share": (1.0, "of the tasks")},
        smallest="--rounds 1 --share 0.05",
    )

import dasklab
import numpy as np
from distributed import Client, LocalCluster

ARMS = ("off", "null", "on")
WORK = {"10 ms": (0.010, 200), "empty": (0.0, 1500)}  # seconds of a task, number of tasks


def compute(number: int, seconds: float) -> int:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return number


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time that all threads of the processes have used, in seconds."""
    threads = (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def measure(client: Client, pids: list[int], seconds: float, tasks: int) -> tuple[float, float]:
    """Run the tasks; return wall and CPU time."""
    cpu, wall = cpu_s(pids), time.perf_counter()
    numbers = client.map(compute, range(tasks), seconds=seconds, pure=False)
    client.submit(sum, numbers, pure=False).result()
    return time.perf_counter() - wall, cpu_s(pids) - cpu


def compare(client: Client, pids: list[int], rounds: int, seconds: float, tasks: int) -> None:
    """Measure all arms of some rounds, and print the ratios."""
    times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    sizes = []
    for _ in range(rounds):
        for arm in random.sample(ARMS, len(ARMS)):
            if arm != "on":
                times[arm].append(measure(client, pids, seconds, tasks))
                continue
            with tempfile.TemporaryDirectory() as folder:
                with dasklab.record(client, Path(folder) / "run"):
                    times[arm].append(measure(client, pids, seconds, tasks))
                sizes.append(sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()))
    for index, what in enumerate(("wall", "CPU")):
        off, null, on = (np.array(times[arm])[:, index] for arm in ARMS)
        print(
            f"  {what}: {1e6 * np.median(off) / tasks:,.0f} us per task; on / off {ratio(on, off)},", end=" "
        )
        print(f"off again / off {ratio(null, off)}")
    print(f"  {np.median(sizes) / tasks:,.0f} bytes per task")


def ratio(over: np.ndarray, under: np.ndarray) -> str:
    """Return the median of the ratios with a bootstrap interval."""
    ratios = over / under
    drawn = np.median(np.random.default_rng(1).choice(ratios, (4000, len(ratios))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def main(args: Namespace) -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        pids = [os.getpid(), *client.run(os.getpid).values()]
        for name, (seconds, tasks) in WORK.items():
            tasks = int(tasks * args.share)
            measure(client, pids, seconds, tasks)
            print(f"tasks of {name}, {args.rounds} rounds of {tasks}:", flush=True)
            compare(client, pids, args.rounds, seconds, tasks)


if __name__ == "__main__":
    main(ARGUMENTS)
