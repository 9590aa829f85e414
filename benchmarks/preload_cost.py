"""What recording costs a run of short tasks: on, off, and off again, in one cluster.

    python benchmarks/preload_cost.py --rounds 40 --tasks 300

A scheduler and three workers run on this machine; this process is the client. Each round runs the same short
tasks three times in random order: ``off``, ``null`` (off again, which shows the noise) and ``on``. We compare
the CPU time of scheduler and workers, which a busy machine disturbs less than wall time, as a ratio within a
round, and print the median with a bootstrap interval. Off means that event loops, messages, fetches and tasks
get no timestamps; the logs that Dask keeps anyway are long in all three. We also print the cost of each
timestamp alone: on a busy machine this is the better figure.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
from distributed import Client
from namespace_cluster import PRELOAD, QUIET

ARMS = ("off", "null", "on")


def switch(node: Any, on: bool) -> None:
    """Remove the timestamps from a scheduler or worker, or add them again."""
    recorder = node.recorder
    selector = node.io_loop.asyncio_loop._selector
    selector.select = recorder.loop.watched if on else recorder.loop.select
    streams = list(node.stream_comms.values()) if hasattr(node, "transition_log") else [node.batched_stream]
    for stream in streams:
        write = vars(stream.comm).setdefault("recorded_write", stream.comm.write)
        if on:
            stream.comm.write = write
        else:
            vars(stream.comm).pop("write", None)
    if hasattr(node, "transition_log"):
        if on:
            node.plugins[recorder.stream.name] = recorder.stream
            recorder.sampling.start()
        else:
            node.plugins.pop(recorder.stream.name, None)
            recorder.sampling.stop()
    else:
        import distributed.worker

        vars(node).setdefault(
            "recorded_calls", (distributed.worker.get_data_from_worker, node.handlers["get_data"])
        )
        fetch, serve = node.recorded_calls
        distributed.worker.get_data_from_worker = fetch if on else fetch.__closure__[0].cell_contents
        node.handlers["get_data"] = serve if on else type(node).get_data.__get__(node)


def of_scheduler(dask_scheduler: Any, on: bool) -> None:
    switch(dask_scheduler, on)


def of_worker(dask_worker: Any, on: bool) -> None:
    switch(dask_worker, on)


def drain(client: Client) -> None:
    """Empty the logs, so that no round pays for another's."""
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.recorder.take() and None)
    client.run(lambda dask_worker: dask_worker.recorder.take() and None)


def cpu_s(processes: list[subprocess.Popen[bytes]]) -> float:
    """Return the CPU time that all threads of the processes have used, in seconds."""
    nanoseconds = 0
    for process in processes:
        for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds / 1e9


def measure(client: Client, processes: list[subprocess.Popen[bytes]], arm: str, tasks: int) -> float:
    """Run short tasks and return their CPU time in seconds."""
    client.run_on_scheduler(of_scheduler, on=arm == "on")
    client.run(of_worker, on=arm == "on")
    before = cpu_s(processes)
    numbers = client.map(lambda i: i + 1, range(tasks), pure=False)
    client.submit(sum, numbers, pure=False).result()
    used = cpu_s(processes) - before
    del numbers
    drain(client)
    time.sleep(0.05)
    return used


def count_selects(node: Any) -> int:
    """Return how often an event loop has waited since the first call."""
    loop, counts = node.recorder.loop, vars(node).setdefault("selects", [0])
    if not counts[0]:
        select = loop.select

        def counted(timeout: float | None = None) -> Any:
            counts[0] += 1
            return select(timeout)

        loop.select = counted
    return int(counts[0])


def waits(client: Client, tasks: int) -> float:
    """Return the waits of all event loops per task."""
    measure(client, [], "on", 1)
    counts = []
    for _ in range(2):
        workers = client.run(lambda dask_worker: count_selects(dask_worker))
        counts.append(sum(workers.values()) + client.run_on_scheduler(_count_of_scheduler))
        measure(client, [], "on", tasks)
    return (counts[1] - counts[0]) / tasks


def _count_of_scheduler(dask_scheduler: Any) -> int:
    return count_selects(dask_scheduler)


def call_us(call: Callable[[], object], number: int = 20_000) -> float:
    """Return the CPU time of a call in microseconds, the least of ten tries."""
    least = float("inf")
    for _ in range(10):
        before = time.thread_time()
        for _ in range(number):
            call()
        least = min(least, time.thread_time() - before)
    return 1e6 * least / number


def stamps_us(waits_per_task: float) -> dict[str, float]:
    """Return the cost of each timestamp of a task: two batches, the loops' waits, the task stream."""
    spec = importlib.util.spec_from_file_location("preload", PRELOAD)
    assert spec and spec.loader
    preload = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preload)

    async def alone() -> dict[str, float]:
        loop, departures = preload.BusyLoop(asyncio.get_running_loop(), {}), preload.Departures()
        loop.select = lambda timeout: ()
        batched, due, message = (
            SimpleNamespace(interval=0.002),
            [0.0],
            [{"op": "compute-task", "key": "inc-1"}],
        )
        stream = preload.TaskStreamPlugin(None, maxlen=preload.LONGEST)
        ends = {"startstops": [{}], "worker": "a", "thread": 1, "nbytes": 1, "typename": b""}
        nothing = call_us(lambda: None)
        return {
            "batches": 2
            * (call_us(lambda: departures.write(lambda msg: 0, "a", batched, due, message)) - nothing),
            "loops": waits_per_task * (call_us(lambda: loop.watched(0.02)) - nothing),
            "task stream": call_us(lambda: stream.transition("a", "processing", "memory", **ends))
            + 6 * call_us(lambda: stream.transition("a", "waiting", "processing")),
        }

    return asyncio.run(alone())


def ratio(over: list[float], under: list[float]) -> str:
    """Return the median of the ratios with a bootstrap interval."""
    ratios = np.array(over) / np.array(under)
    chance = np.random.default_rng(1)
    drawn = np.median(chance.choice(ratios, (4000, len(ratios))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{np.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def cluster(folder: Path) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start a scheduler and three workers that record; return the address and the processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, processes = f"tcp://127.0.0.1:{port}", []
    worker = ["worker", address, "--no-nanny", "--nthreads", "1", "--memory-limit", "0"]
    for index, argv in enumerate([["scheduler", "--port", str(port)], *[worker] * 3]):
        argv = [f"distributed.cli.dask_{argv[0]}", *argv[1:], "--host", "127.0.0.1", "--no-dashboard"]
        if index:
            argv += ["--local-directory", str(folder / str(index))]
        command = [sys.executable, "-m", *argv, "--preload", str(PRELOAD)]
        with (folder / f"{index}.log").open("wb") as log:
            env = {**os.environ, **QUIET}
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=env))
    return address, processes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tasks", type=int, default=300)
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        address, processes = cluster(Path(folder))
        try:
            with Client(address, timeout=60) as client:
                client.wait_for_workers(3)
                cloudpickle.register_pickle_by_value(sys.modules[__name__])
                stamps = stamps_us(waits(client, args.tasks))
                for _ in range(3):
                    measure(client, processes, "on", args.tasks)
                for _ in range(args.rounds):
                    for arm in random.sample(ARMS, len(ARMS)):
                        seconds[arm].append(measure(client, processes, arm, args.tasks))
        finally:
            for process in processes:
                process.kill()
                process.wait()
    per_task_us = {arm: 1e6 * float(np.median(values)) / args.tasks for arm, values in seconds.items()}
    print({arm: f"{us:.0f} us of CPU per task" for arm, us in per_task_us.items()})
    print(f"the timestamps alone, us per task: {stamps}, together {sum(stamps.values()):.1f}")
    print("least:", {arm: f"{1e6 * min(values) / args.tasks:.0f}" for arm, values in seconds.items()})
    null, on = ratio(seconds["null"], seconds["off"]), ratio(seconds["on"], seconds["off"])
    print(f"null / off {null}, on / off {on}")


if __name__ == "__main__":
    main()
