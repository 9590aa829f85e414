"""Questions that people ask about Dask's performance in public, answered by records of a local cluster.

    python benchmarks/public_questions.py FOLDER [--only graph gil pause transfer] [--rounds 5]

Each question compares ways of doing the same work. The ways take turns on one cluster, in another order each
round, and every turn is recorded with `dasklab.record`. Prints, per question, a Markdown table with the
median times and their ratios to the first way (median and range of the rounds), and what `dasklab explain`
tells about the median turns. FOLDER gets the records and a picture per question: threads over time, on one
scale. Run it on a quiet machine.
"""

from __future__ import annotations

import random
import socket
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "folder": (Path, "of the records and pictures"),
            "--only": ([str], "these questions"),
            "--rounds": (5, "turns of each way"),
        },
        smallest="{folder} --only gil --rounds 1",
    )

import dask
import dask.array as da
import dasklab
import distributed
import numpy as np
from dask import delayed
from dasklab.breakdown.show import pictures, wording
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, wait

MB = 1e6
Way = Callable[[Client], Callable[[], object]]
"""Prepares the work on a cluster, and returns what is timed and recorded."""


@dataclass(frozen=True)
class Question:
    """Ways to do the same work; the first is what the others are compared with."""

    issue: str
    ways: dict[str, Way]


# distributed #8814: a large object in the graph

WEIGHTS = np.random.default_rng(1).random(int(8 * MB / 8))  # 8 MB


OBJECTS = 24


def make(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).random(WEIGHTS.size) + number


def use(weights: np.ndarray[Any, Any], number: int) -> float:
    return float(weights[number])


def in_the_graph(client: Client) -> Callable[[], object]:
    """Pass an object of its own to each task as a value."""
    return lambda: dask.compute([delayed(use)(WEIGHTS + n, n) for n in range(OBJECTS)])


def scattered(client: Client) -> Callable[[], object]:
    """Send the objects to the workers first, and pass futures."""

    def act() -> None:
        futures = client.scatter([WEIGHTS + n for n in range(OBJECTS)], direct=True)
        dask.compute([delayed(use)(future, n) for n, future in enumerate(futures)])

    return act


def made_by_tasks(client: Client) -> Callable[[], object]:
    """Make the objects where they are used."""
    return lambda: dask.compute([delayed(use)(delayed(make)(n), n) for n in range(OBJECTS)])


# distributed #6325: pure Python beside transfers


def hold_the_gil(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def release_the_gil(seconds: float) -> None:
    time.sleep(seconds)


def moved(client: Client, beside: Callable[[float], None]) -> Callable[[], object]:
    """Move 20 blocks of 10 MB from one worker to the other, while a task runs beside on each."""
    first, second = sorted(client.scheduler_info()["workers"])
    blocks = [client.submit(np.ones, int(10 * MB / 8), workers=[first], pure=False) for _ in range(20)]
    wait(blocks)

    def act() -> None:
        others = [client.submit(beside, 1.0, workers=[worker], pure=False) for worker in (first, second)]
        sizes = [client.submit(len, block, workers=[second], pure=False) for block in blocks]
        wait(sizes + others)

    return act


def beside_sleep(client: Client) -> Callable[[], object]:
    return moved(client, release_the_gil)


def beside_python(client: Client) -> Callable[[], object]:
    return moved(client, hold_the_gil)


# distributed #7066: white space between computes


def persisted(client: Client) -> Any:
    x = da.random.default_rng(1).random((2000, 2000), chunks=(500, 500)).persist()
    wait(x)
    return x


def one_by_one(client: Client) -> Callable[[], object]:
    """Compute a figure, look at it for 0.1 s, compute the next one."""
    x = persisted(client)

    def act() -> None:
        for power in range(1, 9):
            (x + power).sum().compute()
            time.sleep(0.1)

    return act


def together(client: Client) -> Callable[[], object]:
    """Describe all figures, compute them at once, and look at all."""
    x = persisted(client)

    def act() -> None:
        dask.compute([(x + power).sum() for power in range(1, 9)])
        time.sleep(0.8)

    return act


# distributed #5258: transfers and raw TCP

BLOCK, BLOCKS = int(50 * MB), 12


def raw_tcp(client: Client) -> Callable[[], object]:
    """Let one worker read the bytes from a socket of the other."""
    first, second = sorted(client.scheduler_info()["workers"])

    def act() -> None:
        sender = client.submit(send_raw, workers=[first], pure=False)
        wait(client.submit(receive_raw, sender, workers=[second], pure=False))

    return act


def send_raw() -> int:
    """Serve the bytes to the first who connects, in a thread; return the port."""
    server = socket.create_server(("127.0.0.1", 0))
    block = memoryview(np.ones(BLOCK // 8)).cast("B")

    def serve() -> None:
        connection, _ = server.accept()
        with server, connection:
            for _ in range(BLOCKS):
                connection.sendall(block)

    threading.Thread(target=serve).start()
    port: int = server.getsockname()[1]
    return port


def receive_raw(port: int) -> None:
    buffer = memoryview(bytearray(BLOCK))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(BLOCKS):
            received = 0
            while received < BLOCK:
                received += connection.recv_into(buffer[received:])


def dask_transfer(client: Client) -> Callable[[], object]:
    """Let one worker fetch the same bytes from the other as results of tasks."""
    first, second = sorted(client.scheduler_info()["workers"])
    blocks = [client.submit(np.ones, BLOCK // 8, workers=[first], pure=False) for _ in range(BLOCKS)]
    wait(blocks)
    return lambda: wait([client.submit(len, block, workers=[second], pure=False) for block in blocks])


QUESTIONS = {
    "graph": Question(
        "8814",
        {"in the graph": in_the_graph, "scattered": scattered, "made by tasks": made_by_tasks},
    ),
    "gil": Question("6325", {"beside sleep": beside_sleep, "beside pure Python": beside_python}),
    "pause": Question("7066", {"one by one": one_by_one, "together": together}),
    "transfer": Question("5258", {"raw TCP": raw_tcp, "Dask": dask_transfer}),
}


def turn(client: Client, way: Way, folder: Path) -> float:
    """Do the work once, recorded, and return how long it took."""
    act = way(client)
    with dasklab.record(client, folder):
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin


def answer(name: str, folder: Path, rounds: int) -> None:
    question, chance = QUESTIONS[name], random.Random(7)
    seconds: dict[str, list[float]] = {way: [] for way in question.ways}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for way in question.ways.values():
            way(client)()  # warm up
        for number in range(rounds):
            for label, way in chance.sample(sorted(question.ways.items()), len(question.ways)):
                seconds[label].append(turn(client, way, folder / name / f"{label}-{number}"))
    print(f"\n## {name}: distributed #{question.issue}\n\n| way | s | ratio |\n|---|---|---|")
    first = next(iter(question.ways))
    middle: dict[str, Explained] = {}
    for label, values in seconds.items():
        ratios = sorted(value / base for value, base in zip(values, seconds[first], strict=True))
        ratio = f"x {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {label} | {statistics.median(values):.2f} | {'' if label == first else ratio} |")
        number = values.index(statistics.median_low(values))
        middle[label] = explain(open_trial(folder / name / f"{label}-{number}"))
    for label, explained in middle.items():
        print(f"\n{label}: {wording.paragraph(explained.summary)}")
        print(*(f"- {advice}" for advice in explained.advice), sep="\n")
    picture = folder / f"question-{name}.png"
    pictures.beside({label: explained.median_repeat for label, explained in middle.items()}).savefig(
        picture, dpi=110
    )


def main(options: Namespace) -> None:
    print(f"Dask {dask.__version__}, distributed {distributed.__version__}, two workers with a thread each")
    for name in chosen(options.only, QUESTIONS):
        answer(name, options.folder, options.rounds)


if __name__ == "__main__":
    main(ARGUMENTS)
