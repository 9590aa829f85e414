"""How much memory `dasklab.record` takes beyond a process's own, in a long run of small tasks.

    python benchmarks/record_memory.py [--minutes 10] [--rate 100]

Client, scheduler and one worker share a process, which is the worst case. A run without a record comes
first. We print the resident memory before, after each sixth of the time and at the end, and fail if the
record took more than the limit in docs/how-to/record-a-cluster.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import dasklab
import psutil
from distributed import Client, LocalCluster, wait

LIMIT_MB = 100
MB = 1e6


def resident_mb() -> float:
    return psutil.Process().memory_info().rss / MB


def run(client: Client, seconds: float, rate: int) -> list[float]:
    """Compute ``rate`` tasks each second; return the memory after each sixth of the time."""
    sizes, begin = [], time.monotonic()
    for sixth in range(1, 7):
        while time.monotonic() < begin + sixth * seconds / 6:
            due = time.monotonic() + 1
            wait(client.map(abs, range(rate), pure=False))
            time.sleep(max(0.0, due - time.monotonic()))
        sizes.append(resident_mb())
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=100)
    args = parser.parse_args()
    rises = []
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    with cluster, Client(cluster) as client, tempfile.TemporaryDirectory() as folder:
        for name, recording in (
            ("without", nullcontext),
            ("recorded", lambda: dasklab.record(client, Path(folder) / "run")),
        ):
            before = resident_mb()
            with recording():  # what it imports counts, too
                sizes = run(client, args.minutes * 60, args.rate)
            rises.append(max(sizes) - before)
            print(f"{name}: {before:.0f} MB before, then", *(f"{size:.0f}" for size in sizes), flush=True)
    print(f"the record took {rises[1]:.0f} MB; limit: {LIMIT_MB} MB")
    sys.exit(rises[1] > LIMIT_MB)


if __name__ == "__main__":
    main()
