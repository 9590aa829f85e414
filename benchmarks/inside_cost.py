"""What recording costs a run of short tasks: clusters with and without the preload, and without once more.

    python benchmarks/inside_cost.py --blocks 6 --tasks 2000

Each block has the three arms in random order, each on a fresh cluster in network namespaces: ``off`` is the
baseline, ``null`` its exact copy (the noise), ``on`` records. Compared are the least wall time and the least
CPU time of a run, of scheduler and workers together; the median over blocks of the ratios within a block,
with a bootstrap interval. CPU time is what a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
from inside_cluster import Cluster, cluster

ARMS = ("off", "null", "on")


def cpu_s(made: Cluster) -> float:
    """Seconds of CPU that scheduler and workers have used, of all their threads."""
    ticks = 0.0
    for process in made.running.values():
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            ticks += int((task / "schedstat").read_text().split()[0])
    return ticks / 1e9


def measure(arm: str, tasks: int, runs: int) -> tuple[float, float]:
    """Least wall time of a run, and mean CPU time of a run beyond the first."""
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), record=arm == "on") as made:
        made.workload("merge", {"tasks": tasks}, 1, 0)  # imports, first connections
        before = cpu_s(made)
        said = made.workload("merge", {"tasks": tasks}, runs, 0)
        used = cpu_s(made) - before
    return min(sample["duration_s"] for sample in said["samples"]), used / runs


def ratio(over: list[float], under: list[float]) -> str:
    """Median of the ratios, with what resampling the blocks makes of it."""
    ratios = np.array(over) / np.array(under)
    chance = np.random.default_rng(1)
    drawn = np.median(chance.choice(ratios, (4000, len(ratios))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Run the blocks, print a line each and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    wall: dict[str, list[float]] = {arm: [] for arm in ARMS}
    cpu: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for _ in range(args.blocks):
        for arm in random.sample(ARMS, len(ARMS)):
            least, used = measure(arm, args.tasks, args.runs)
            wall[arm].append(least)
            cpu[arm].append(used)
        print({arm: f"{wall[arm][-1]:.2f} s, cpu {cpu[arm][-1]:.2f} s" for arm in ARMS}, flush=True)
    for name, found in (("wall", wall), ("cpu", cpu)):
        null, on = (ratio(found[arm], found["off"]) for arm in ("null", "on"))
        print(f"{name}: null / off {null}, on / off {on}")


if __name__ == "__main__":
    main()
