"""How long `dasklab explain` takes for a large record, and how large the record is.

    python benchmarks/record_size.py --tasks 100000 [--workers 16] [--threads 2]

Writes a made-up record of so many tasks in the recorder's own form: layers of tasks of about 10 ms on busy
workers, each of which needs two results of the layer before, most of them from other workers. Prints its
bytes per task, and wall time and peak memory of `dasklab explain` in a process of its own.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dasklab.records import chunk_file
from dasklab.records.document import RECORD, Record
from dasklab.records.recorder.layout import CLIENT, FORM, SCHEDULER, WORKER
from dasklab.records.recorder.store import Store

BEGIN = 1.8e9
TASK_S, GAP_S, FETCH_S = 0.010, 0.001, 0.002
LAYER = 1000  # tasks


def write(folder: Path, tasks: int, workers: int, threads: int) -> None:
    """Write a record of a run that never happened."""
    chance = random.Random(1)
    addresses = [f"tcp://10.0.0.{n + 1}:4000" for n in range(workers)]
    stores = {address: Store(WORKER, tasks) for address in addresses}
    scheduler, client = Store(SCHEDULER, tasks * 10), Store(CLIENT, 10)
    free = [(BEGIN + 0.1, address, thread) for address in addresses for thread in range(threads)]
    where: dict[str, str] = {}
    before: list[str] = []
    layer: list[str] = []
    end = BEGIN
    for number in range(tasks):
        if len(layer) == LAYER:
            before, layer = layer, []
        slot = number % len(free)
        time_free, address, thread = free[slot]
        key = f"('step-{number // LAYER:06d}abcdef0123456789', {number % LAYER})"
        needs = chance.sample(before, 2) if before else []
        decided = time_free - GAP_S
        arrived = decided + 0.0006
        ready = arrived
        for need in needs:
            peer = where[need]
            if peer != address:
                stop = arrived + FETCH_S * chance.uniform(0.5, 1.5)
                stores[address].logs["fetches"].add(arrived, stop, peer, need, "OK", 0.0001)
                stores[peer].logs["served"].add(arrived + 0.0003, stop - 0.0003, address, need, 0.0001)
                ready = max(ready, stop)
            stores[address].logs["needs"].add(key, need, 8e4, peer)
        start = max(ready + 0.0003, time_free + 0.0002)
        stop = start + TASK_S * chance.uniform(0.7, 1.3)
        handled = stop + 0.0012
        trigger = before[-1] if before else ""
        scheduler.logs["tasks"].add(
            key, address, BEGIN + 0.01, BEGIN + 0.02, decided, decided + 0.0001, decided + 0.0002, handled,
            trigger, "task-finished", thread, start, stop, 0.0, 8e4, "ndarray", "memory", 1, "", "",
        )  # fmt: skip
        stores[address].logs["tasks"].add(
            key, arrived, ready, start - 0.0002, start, stop, float("nan"), stop + 0.0001, stop + 0.0002,
            stop + 0.0003, thread, 0.0, 8e4, "memory",
        )  # fmt: skip
        stores[address].logs["busy"].add(stop, stop + 0.0004, 0.0)
        scheduler.logs["busy"].add(handled - 0.0002, handled, 0.0)
        free[slot] = (stop + GAP_S + 0.0008, address, thread)
        where[key] = address
        layer.append(key)
        end = max(end, handled)
    for number, address in enumerate(addresses):
        scheduler.logs["workers"].add(BEGIN, address, str(number), threads, "10.0.0.1", "present")
    scheduler.logs["graphs"].add(1, BEGIN + 0.01, "me", tasks, 0.01, 0.01, 0.01)
    client.logs["graphs"].add(BEGIN, BEGIN + 0.005, 1e6, 1, "made_up.py", 1, "result = df.compute()")
    client.logs["calls"].add("sync", BEGIN, end + 0.01, 0, 0.0, "made_up.py", 1, "result = df.compute()")
    client.logs["clock"].add(BEGIN, BEGIN + 0.001, BEGIN + 0.002)
    folder.mkdir(parents=True)
    for process, store in {"scheduler": scheduler, "client": client, **stores}.items():
        while store.pack():
            chunk_file.append(folder / RECORD, process, store.take(float("inf")))
    about = Record(form=FORM, client="me", start=BEGIN, stop=end + 0.02, lost={}, failures={})
    about.write(folder)


def main() -> None:
    """Write, explain, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder to leave the record in")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or Path(temporary)) / "run"
        if not folder.exists():
            write(folder, args.tasks, args.workers, args.threads)
        nbytes = (folder / RECORD).stat().st_size
        begin = time.monotonic()
        process = subprocess.run(
            [sys.executable, "-m", "dasklab", "explain", str(folder)],
            capture_output=True,
            text=True,
            check=True,
        )
        took = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(process.stdout.split("\n\n")[0])
    print(
        f"{args.tasks:,} tasks: {nbytes / args.tasks:.0f} bytes per task; explain took {took:.1f} s"
        f" ({used.ru_utime + used.ru_stime:.1f} s of CPU), at most {used.ru_maxrss / 1e6:.2f} GB"
    )


if __name__ == "__main__":
    main()
