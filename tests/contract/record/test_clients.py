"""Several clients on a real cluster: whose tasks had the threads, and whose lines are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import dasklab
import pytest
from dasklab.breakdown.show.clients import client_sentences
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.breakdown.show.operation_table import rows
from dasklab.records.session import Session
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, wait


def slow(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as other:
        yield other


def record_of(folder: Path) -> Explained:
    return explain(open_trial(folder))


def sentences(record: Explained) -> list[str]:
    return [*map(str, client_sentences(record.median_repeat))]


def test_tasks_that_another_client_had_submitted_before_are_not_mine(
    client: Client, other: Client, tmp_path: Path
) -> None:
    theirs = other.map(slow, range(16), seconds=0.1, pure=False)
    wait(theirs[0])
    with dasklab.record(client, tmp_path / "run"):
        client.gather(client.map(time.sleep, [0.02] * 6, pure=False))
    wait(theirs)
    record = record_of(tmp_path / "run")
    (operation,) = record.operations
    assert operation.tasks == 6
    (sentence,) = sentences(record)
    assert (
        sentence.startswith("Another client used the cluster, too: ") and " tasks (slow) ran for " in sentence
    )


def test_operations_of_another_client_have_none_of_my_lines(
    client: Client, other: Client, tmp_path: Path
) -> None:
    with dasklab.record(client, tmp_path / "run"):
        theirs = other.map(slow, range(4), seconds=0.1, pure=False)
        client.gather(client.map(time.sleep, [0.1] * 4, pure=False))
        wait(theirs)
    record = record_of(tmp_path / "run")
    assert sorted(operation.is_foreign for operation in record.operations) == [False, True]
    lines = {row[1] for row in rows(record)}
    assert "another client" in lines and any("time.sleep" in line for line in lines)
    assert record.operations[0].tasks == record.operations[1].tasks == 4
    # they overlap, so threads and the path are not divided between them
    assert {row[5:] for row in rows(record)} == {("", "")}


def test_alone_on_the_cluster_nothing_is_said(client: Client, tmp_path: Path) -> None:
    earlier = client.map(slow, range(4), seconds=0.1, pure=False)
    with dasklab.record(client, tmp_path / "run"):
        client.gather(client.map(slow, range(4), seconds=0.05, pure=False))
        wait(earlier)
    assert sentences(record_of(tmp_path / "run")) == []


def test_clients_that_were_watched_are_told_apart(client: Client, other: Client, tmp_path: Path) -> None:
    with (
        Client(client.cluster, set_as_default=False) as watcher,
        Session(watcher, tmp_path / "run", watches=True),
    ):
        futures = [c.map(slow, range(4), seconds=0.1, pure=False) for c in (client, other)]
        wait(futures[0])
        other.gather(futures[1])
        time.sleep(0.1)
    (sentence,) = sentences(record_of(tmp_path / "run"))
    assert sentence.startswith("2 clients used the cluster; their tasks ran for 0.")
