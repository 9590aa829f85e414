"""Advice about real clusters: what is provoked is advised on, and nothing is said where nothing is wrong."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dask
import dasklab
import numpy as np
import pytest
from click.testing import CliRunner
from dasklab.breakdown.show.explain import explain
from dasklab.cli import main
from dasklab.results.run import open_trial
from distributed import Client, Event, LocalCluster, Lock, wait

from tests.contract.record.clusters import LOCAL


def array(megabytes: int) -> Any:
    return np.random.default_rng(1).random(megabytes * 125_000)


def tiny_tasks(client: Client) -> None:
    client.gather(client.map(int, range(1500), pure=False))


def large_arguments(client: Client) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask warns, too
        for number in range(4):
            client.submit(len, bytes(24_000_000) + bytes([number]), pure=False).result()


def one_long_task(client: Client) -> None:
    client.gather(client.map(time.sleep, [0.01] * 20 + [1.2], pure=False))


def all_on_one_worker(client: Client) -> None:
    worker = next(iter(client.scheduler_info()["workers"]))
    client.gather(client.map(time.sleep, [0.05] * 30, workers=[worker], pure=False))


def result_in_a_loop(client: Client) -> None:
    for _ in range(12):
        client.submit(time.sleep, 0.1, pure=False).result()


def same_again(client: Client) -> None:
    for number in range(4):
        parts = client.map(loaded, range(8))
        client.submit(add, number, parts).result()
        del parts
        time.sleep(0.1)


def loaded(number: int) -> int:
    time.sleep(0.1)
    return number


def add(number: int, parts: list[int]) -> int:
    return number + sum(parts)


def attempts(client: Client) -> None:
    client.gather(client.map(fails_twice, range(8), [uuid4().hex] * 8, retries=5, pure=False))


def fails_twice(number: int, name: str) -> int:
    time.sleep(0.1)
    path = Path(tempfile.gettempdir()) / f"dasklab-{name}-{number}"
    tries = len(path.read_text()) if path.exists() else 0
    if tries >= 2:
        path.unlink()
        return number
    path.write_text("x" * (tries + 1))
    raise OSError("the disk is slow")


def first_tasks(client: Client) -> None:
    def connects(number: int, name: str) -> int:
        import builtins

        connected = vars(builtins).setdefault("dasklab_connected", set())
        time.sleep(0.02 if name in connected else 1.0)
        connected.add(name)
        return number

    client.gather(client.map(connects, range(40), [uuid4().hex] * 40, pure=False))


def slow_to_unpickle(client: Client) -> None:
    client.gather(client.map(Slow, range(6), pure=False))


class Slow:
    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: dict[str, int]) -> None:
        time.sleep(0.15)
        self.__dict__.update(state)


def lock(client: Client) -> None:
    def locked(number: int) -> int:
        with Lock("the lock"):
            time.sleep(0.1)
        return number

    client.gather(client.map(locked, range(12), pure=False))


def event(client: Client) -> None:
    def waiting(number: int) -> bool:
        return bool(Event("go").wait())

    futures = client.map(waiting, range(2), pure=False)
    futures += client.map(time.sleep, [0.1] * 6, pure=False)
    time.sleep(1.0)
    Event("go").set()
    client.gather(futures)


def gather_much(client: Client) -> None:
    client.gather(client.map(array, [16] * 60, pure=False))


def scatter_many(client: Client) -> None:
    data = client.scatter(list(range(8000)), hash=False)
    client.submit(sum, data, pure=False).result()


def spilling(client: Client) -> None:
    parts = client.map(array, [40] * 14, pure=False)
    wait(parts)
    client.gather(client.map(lambda part: float(part[0]), parts, pure=False))


Act = Callable[[Client], None]
PROVOKED: dict[Act, tuple[str, str]] = {
    tiny_tasks: ("small tasks", "1,500 tasks took"),
    large_arguments: ("large graphs", "Graphs of 96 MB took"),
    one_long_task: ("one long task", "One task, sleep, took 1."),
    all_on_one_worker: ("restricted tasks", "did 100 % of the work of 2 workers"),
    result_in_a_loop: ("one result at a time", "12 computations came one after another"),
    same_again: ("the same computed again", "loaded ran 32 times for 8 keys"),
    attempts: ("failed attempts", "16 attempts of fails_twice failed (OSError"),
    first_tasks: ("slow first tasks", "The first connects on each worker took 1 s or more"),
    slow_to_unpickle: ("unpickling at the client", "while 6 results of"),
    lock: ("locks", "waited for the Lock 'the lock' that locked holds"),
    event: ("events, queues and variables", "waited for the Event 'go'"),
    gather_much: ("results through the scheduler", "MB of results through the scheduler to the client took"),
    scatter_many: ("many scattered objects", "Scattering 8,000 objects took"),
}


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.run(array, 1)  # imports this module, which would be a part of the record
        yield client


def advice(client: Client, act: Act, folder: Path) -> dict[str, str]:
    with dasklab.record(client, folder):
        act(client)
    return {piece.rule.title: str(piece) for piece in explain(open_trial(folder)).advice}


@pytest.mark.parametrize("act", PROVOKED, ids=lambda act: act.__name__)
def test_what_is_provoked_is_advised_on(act: Act, client: Client, tmp_path: Path) -> None:
    title, text = PROVOKED[act]
    pieces = advice(client, act, tmp_path / "run")
    assert text in pieces.get(title, ""), pieces
    assert "This accounts for " in pieces[title]


def test_spilling_is_advised_on_and_names_what_is_large(tmp_path: Path) -> None:
    never = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
    with (
        dask.config.set(never),  # a paused worker might stay so: its own memory is near the limit
        LocalCluster(**LOCAL, memory_limit="300MB") as cluster,
        Client(cluster) as client,
    ):
        client.run(array, 1)
        pieces = advice(client, spilling, tmp_path / "run")
    assert "results of array are the largest together, 560 MB" in pieces.get("spilling", ""), pieces


def test_nothing_is_said_where_nothing_is_wrong(client: Client, tmp_path: Path) -> None:
    def equal_waits(client: Client) -> None:
        client.gather(client.map(time.sleep, [0.2] * 12, pure=False))

    pieces = advice(client, equal_waits, tmp_path / "run")
    of_others = {"too few CPUs", "CPUs that other programs use"}  # other tests may use this machine
    assert pieces.keys() <= of_others, pieces


def test_advice_is_shown_wherever_a_record_is_explained(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run") as run:
        lock(client)
    sentence = "waited for the Lock 'the lock' that locked holds"
    explanation = run.explain()
    assert f"\n- Tasks kept their threads while they {sentence}" in str(explanation)
    page = explanation._repr_html_()
    assert (
        "Tasks kept their threads" in page and '<a href="https://docs.dask.org/en/stable/futures.html' in page
    )
    text = CliRunner().invoke(main, ["explain", str(tmp_path / "run")])
    assert sentence in text.output, text.output
    lines = CliRunner().invoke(main, ["explain", str(tmp_path / "run"), "--json"]).output.splitlines()
    pieces = json.loads(lines[0])["advice"]
    assert "locks" in [piece["title"] for piece in pieces]
    assert set(pieces[0]) == {"title", "sentence", "seconds", "threshold", "remedy", "page"}
