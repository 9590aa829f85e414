"""Programs of clients, to be recorded in one cluster and predicted for another; see record_predictions.py.

    python benchmarks/support/record_programs.py SCHEDULER FOLDER WORKERS RECORD [PROGRAM...]

Runs each program once to import what it needs and twice to measure it, and prints the seconds as JSON. With
RECORD 1 the second measurement is recorded in FOLDER/PROGRAM. Tasks wait instead of computing, so that two
cores hold twelve workers; each waits as long as its seed says.
"""

from __future__ import annotations

import json
import operator
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import dasklab
import numpy as np
import pandas as pd
from distributed import Client, as_completed

TIMEOUT_S = 60


def wait(seed: int, least_s: float, most_s: float) -> None:
    time.sleep(random.Random(seed).uniform(least_s, most_s))


def leaf(seed: int, nbytes: int = 0, least_s: float = 0.05, most_s: float = 0.15, *_: Any) -> bytes:
    wait(seed, least_s, most_s)
    return random.Random(seed).randbytes(nbytes)


def slow_block(block: Any, block_info: Any = None) -> Any:
    wait(int(block_info[0]["chunk-location"][0]), 0.02, 0.06)
    return block


def random_block(block_info: Any = None) -> Any:
    row, column = block_info[None]["chunk-location"]
    wait(100 * row + column, 0.03, 0.09)
    return np.random.default_rng(row).random((400, 400))


def partition(number: int) -> pd.DataFrame:
    wait(number, 0.05, 0.15)
    dice = np.random.default_rng(number)
    return pd.DataFrame({"a": dice.integers(0, 1000, 60_000), "b": dice.random(60_000)})


def slow_partition(frame: pd.DataFrame) -> pd.DataFrame:
    time.sleep(0.08)
    return frame


def frame_of(partitions: int) -> Any:
    meta = pd.DataFrame({"a": np.array([], int), "b": np.array([], float)})
    return dd.from_map(partition, range(partitions), meta=meta)


def array(_: Client) -> None:
    """A sum with its transpose: blocks of 1.3 MB cross the cluster."""
    blocks = da.map_blocks(random_block, chunks=((400,) * 8, (400,) * 8), dtype=float)
    (blocks + blocks.T).map_blocks(slow_block, dtype=float).sum().compute()


def shuffle(_: Client) -> None:
    """A peer-to-peer shuffle of 24 partitions of 1 MB."""
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        shuffled = frame_of(24).shuffle("a")
        shuffled.map_partitions(slow_partition, meta=shuffled._meta).b.sum().compute()


def tree(client: Client) -> None:
    """A tree of 48 futures that are joined in pairs."""
    level = client.map(leaf, range(48), nbytes=300_000, pure=False)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        joined = [client.submit(leaf, n, 300_000, 0.05, 0.1, *pair) for n, pair in enumerate(pairs)]
        level = joined + level[len(joined) * 2 :]
    client.gather(level)


def tiny(client: Client) -> None:
    """1,500 tasks that take no time."""
    client.gather(client.map(operator.neg, range(1500), pure=False))


def pauses(client: Client) -> None:
    """A client that computes between its graphs."""
    for round_number in range(4):
        seeds = range(100 * round_number, 100 * round_number + 14)
        client.gather(client.map(leaf, seeds, pure=False))
        time.sleep(0.4)


def completed(client: Client) -> None:
    """Work that is sent whenever some is done."""
    futures = as_completed(client.map(leaf, range(20), pure=False))
    number = 20
    for _ in futures:
        if number < 60:
            futures.add(client.submit(leaf, number, pure=False))
            number += 1


def groupby(_: Client) -> None:
    """A groupby over 48 partitions."""
    frame_of(48).groupby("a").b.sum().compute()


def data(client: Client) -> None:
    """Data that the client sends and fetches: its own link matters."""
    content = client.scatter(random.Random(0).randbytes(8_000_000))
    client.gather([client.submit(leaf, n, 1_000_000, 0.1, 0.3, content, pure=False) for n in range(16)])


PROGRAMS: dict[str, Callable[[Client], None]] = {
    program.__name__: program for program in (array, shuffle, tree, tiny, pauses, completed, groupby, data)
}


def main() -> None:
    address, folder, workers, is_recorded, *names = sys.argv[1:]
    measured: dict[str, list[float]] = {}
    with Client(address, timeout=TIMEOUT_S) as client:
        client.wait_for_workers(int(workers), timeout=TIMEOUT_S)
        for name in names or PROGRAMS:
            program = PROGRAMS[name]
            program(client)
            measured[name] = []
            for number in (0, 1):
                time.sleep(0.3)
                start = time.monotonic()
                if int(is_recorded) and number == 1:
                    with dasklab.record(client, Path(folder) / name):
                        start = time.monotonic()
                        program(client)
                        seconds = time.monotonic() - start
                else:
                    program(client)
                    seconds = time.monotonic() - start
                measured[name].append(seconds)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
