"""How long `dasklab explain` takes for a large record, and how large the record is.

    python benchmarks/record_size.py --tasks 100000 [--workers 16] [--threads 2]

Writes a made-up record of so many tasks in the recorder's own form: layers of tasks of about 10 ms on busy
workers, each of which needs two results of the layer before, most of them from other workers. Prints its
bytes per task, and wall time and peak memory of `dasklab explain` in a process of its own.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--tasks": (100_000, "of the record"),
            "--workers": (16, "of its cluster"),
            "--threads": (2, "of a worker"),
            "--keep": (Path, "folder to leave the record in"),
        },
        smallest="--tasks 2500 --workers 4",
    )

from dasklab.records import chunk_file
from dasklab.records.document import RECORD, Record
from dasklab.records.recorder.layout import CLIENT, FORM, SCHEDULER, WORKER
from dasklab.records.recorder.store import Log, Store

BEGIN = 1.8e9
TASK_S, GAP_S, FETCH_S = 0.010, 0.001, 0.002
LAYER = 1000  # tasks
NOTHING = {"t": float("nan"), "f": 0.0, "i": 0, "s": ""}  # by kind of column


def add(log: Log, **values: Any) -> None:
    """Add a row; a column that is not named has a value that says nothing."""
    log.add(*(values.pop(column.name, NOTHING[column.kind]) for column in log.columns))
    assert not values, f"no such columns: {values}"


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
                add(
                    stores[address].logs["fetches"],
                    start=arrived,
                    stop=stop,
                    peer=peer,
                    keys=need,
                    status="OK",
                )
                served = {"start": arrived + 0.0003, "stop": stop - 0.0003, "who": address, "keys": need}
                add(stores[peer].logs["served"], **served)
                ready = max(ready, stop)
            add(stores[address].logs["needs"], key=key, needed=need, nbytes=8e4, holders=peer)
        start = max(ready + 0.0003, time_free + 0.0002)
        stop = start + TASK_S * chance.uniform(0.7, 1.3)
        handled = stop + 0.0012
        trigger = before[-1] if before else ""
        measured = {"key": key, "thread": thread, "start": start, "stop": stop, "nbytes": 8e4}
        add(
            scheduler.logs["tasks"], worker=address, waiting=BEGIN + 0.01, queued=BEGIN + 0.02,
            decided=decided, due=decided + 0.0001, sent=decided + 0.0002, handled=handled, trigger=trigger,
            stimulus="task-finished", type="ndarray", graph=1, client="me", status="memory",
            **measured,
        )  # fmt: skip
        add(
            stores[address].logs["tasks"], arrived=arrived, ready=ready, executing=start - 0.0002,
            done=stop + 0.0001, due=stop + 0.0002, reported=stop + 0.0003, status="memory", **measured,
        )  # fmt: skip
        add(stores[address].logs["busy"], start=stop, stop=stop + 0.0004)
        add(scheduler.logs["busy"], start=handled - 0.0002, stop=handled)
        free[slot] = (stop + GAP_S + 0.0008, address, thread)
        where[key] = address
        layer.append(key)
        end = max(end, handled)
    for number, address in enumerate(addresses):
        row = {"time": BEGIN, "worker": address, "name": str(number), "threads": threads, "host": "10.0.0.1"}
        add(scheduler.logs["workers"], kind="present", **row)
    add(scheduler.logs["graphs"], number=1, received=BEGIN + 0.01, client="me", tasks=tasks, materialise=0.01)
    place = {"file": "made_up.py", "line": 1, "code": "result = df.compute()"}
    add(client.logs["graphs"], begin=BEGIN, sent=BEGIN + 0.005, nbytes=1e6, keys=1, **place)
    add(client.logs["calls"], kind="sync", start=BEGIN, stop=end + 0.01, **place)
    add(client.logs["clock"], asked=BEGIN, scheduler=BEGIN + 0.001, answered=BEGIN + 0.002)
    folder.mkdir(parents=True)
    for process, store in {"scheduler": scheduler, "client": client, **stores}.items():
        while store.pack():
            chunk_file.append(folder / RECORD, process, store.take(float("inf")))
    about = Record(form=FORM, client="me", start=BEGIN, stop=end + 0.02, lost={}, failures={})
    about.write(folder)


def main(args: Namespace) -> None:
    """Write, explain, report."""
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
    main(ARGUMENTS)
