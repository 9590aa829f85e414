"""How much memory `dasklab.record` takes beyond a process's own, in a long run of small tasks.

    python benchmarks/record_memory.py [--minutes 10] [--rate 100]

Client, scheduler and one worker share a process, which is the worst case. A run without a record comes
first. We print the resident memory before, after each sixth of the time and at the end, and fail if the
record took more than the limit in docs/how-to/record-a-cluster.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--minutes": (10.0, "length of each run"),
            "--rate": (100, "tasks a second"),
        },
        smallest="--minutes 0.05",
    )

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


def main(args: Namespace) -> None:
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
    main(ARGUMENTS)
