"""Advice about real clusters: what is provoked is advised on, and nothing is said where nothing is wrong."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    time.sleep(1.0)
    Event("go").set()
    client.gather(futures)


def gather_much(client: Client) -> None:
    client.gather(client.map(array, [16] * 12, pure=False))


def scatter_many(client: Client) -> None:
    data = client.scatter(list(range(1500)), hash=False)
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
    all_on_one_worker: ("skew", "did 100 % of the work of 2 workers"),
    lock: ("locks", "waited for the Lock 'the lock' that locked holds"),
    event: ("events, queues and variables", "waited for the Event 'go'"),
    gather_much: ("results through the scheduler", "Moving results through the scheduler to the client took"),
    scatter_many: ("many scattered objects", "Scattering 1,500 objects took"),
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
    assert "(threshold: " in pieces[title] and "dask.org/en/stable/" in pieces[title]


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
    assert pieces.keys() <= {"too few CPUs"}, pieces  # other tests may use this machine's CPUs


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
