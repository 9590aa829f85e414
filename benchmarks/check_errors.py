"""How often `dasklab check` is wrong: the same work, and work of 1.3 times the length, with and without load.

    python benchmarks/check_errors.py record FOLDER [--sessions 10] [--seed 1] [--load]
    python benchmarks/check_errors.py judge FOLDER [--baseline 3]

``record`` records sessions of five runs, each session on a cluster of its own, of the work and then of the
longer work. With ``--load``, up to 4 other processes compute at the same time; their number changes every few
seconds, as the seed determines. ``judge`` compares each session with a baseline of others, and counts the
verdicts.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "action": (("record", "judge", "both"), "what to do"),
            "folder": (Path, "of the records"),
            "--sessions": (10, "how many to record"),
            "--seed": (1, "determines the load"),
            "--runs": (5, "runs of a session"),
            "--length": (1.0, "factor of all work"),
            "--load": (False, "compute beside it"),
            "--baseline": (1, "sessions of a baseline"),
        },
        smallest="both {folder} --sessions 2 --runs 2 --length 0.01",
    )

import dasklab
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.comparison.check import CheckedRecords, check
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster

TASKS = 12
ROUNDS = 1_200_000
"""Rounds of a loop in each task. On a machine of 2026 they take about 60 ms."""
FACTORS = {"same": 1.0, "longer": 1.3}
MOST_BUSY = 4
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with the benchmark
LIMIT_PCT = 10.0


def compute(number: int, factor: float) -> float:
    """Use Python for some time, then NumPy for a moment."""
    import numpy as np

    total = 0
    for step in range(int(ROUNDS * factor)):
        total += step & number
    return total + float(np.ones((200, 200)).dot(np.ones(200)).sum())


def work(client: Client, factor: float) -> None:
    """Compute some tasks, and a sum of them."""
    numbers = client.map(compute, range(TASKS), factor=factor, pure=False)
    client.submit(sum, numbers, pure=False).result()


@contextmanager
def changing_load(seed: int) -> Iterator[None]:
    """Keep a number of processes busy that changes every few seconds."""
    chance, stopped = random.Random(seed), threading.Event()

    def change() -> None:
        while not stopped.is_set():
            busy = [
                subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(chance.randint(0, MOST_BUSY))
            ]
            stopped.wait(chance.uniform(2, 12))
            for process in busy:
                process.kill()
                process.wait()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def record_session(folder: Path, runs: int, factor: float) -> None:
    """Record some runs on a cluster of their own, after one that is not recorded."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        work(client, factor)
        for number in range(1, runs + 1):
            with dasklab.record(client, folder / str(number)):
                work(client, factor)


def record(folder: Path, sessions: int, runs: int, seed: int, load: bool, length: float) -> None:
    """Record sessions of each kind of work, in random order."""
    order = [(number, kind) for number in range(1, sessions + 1) for kind in FACTORS]
    random.Random(seed).shuffle(order)
    for place, (number, kind) in enumerate(order):
        started = time.monotonic()
        session = folder / kind / f"{number:02}"
        if load:
            with changing_load(seed * 1000 + place):
                record_session(session, runs, length * FACTORS[kind])
        else:
            record_session(session, runs, length * FACTORS[kind])
        print(f"{session}: {time.monotonic() - started:.0f} s", flush=True)


def read(folder: Path) -> list[list[Explained]]:
    """Return the records of each session."""
    return [
        [explain(open_trial(path)) for path in sorted(session.iterdir())]
        for session in sorted(folder.iterdir())
    ]


def judge(folder: Path, baseline: int) -> None:
    """Compare each session with every baseline of some sessions of the same work that does not contain it."""
    same, longer = (read(folder / kind) for kind in FACTORS)
    baselines = list(combinations(range(len(same)), baseline))
    random.Random(1).shuffle(baselines)
    for kind, sessions in (("same work", same), ("x 1.3", longer)):
        results: list[CheckedRecords] = []
        for number, session in enumerate(sessions):
            chosen = next(old for old in baselines if kind != "same work" or number not in old)
            baselines.append(baselines.pop(baselines.index(chosen)))
            results.append(check(session, [row for place in chosen for row in same[place]], LIMIT_PCT))
        print(f"{kind}:", dict(Counter(result.verdict.name.lower() for result in results)))
        for result in results:
            print(f"  {result}")


def main(options: Namespace) -> None:
    if options.action in ("record", "both"):
        record(options.folder, options.sessions, options.runs, options.seed, options.load, options.length)
    if options.action in ("judge", "both"):
        judge(options.folder, options.baseline)


if __name__ == "__main__":
    main(ARGUMENTS)
