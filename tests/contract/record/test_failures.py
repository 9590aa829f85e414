"""What fails on real clusters is said, with its figures; where nothing fails nothing is said."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dasklab
import pytest
from dasklab import records
from dasklab.breakdown.show.explain import explain
from dasklab.breakdown.show.failures import failure_sentences
from dasklab.records import promises
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, Scheduler, wait

from tests.contract.record.clusters import LOCAL
from tests.waiting import until


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def sentences(client: Client, folder: Path, act: Callable[[Client], Any]) -> list[str]:
    with dasklab.record(client, folder) as run:
        act(client)
    assert not run.failures
    record = explain(open_trial(folder))
    promises.validate(records.load(folder))
    return [*map(str, failure_sentences(record.median_repeat, record.facts.failures))]


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="only Linux knows what threads had of a CPU"
)
def test_what_an_attempt_that_failed_had_of_a_cpu(client: Client, tmp_path: Path) -> None:
    def unlucky(number: int) -> None:
        time.sleep(0.2)
        until = time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        raise OSError(number)

    with dasklab.record(client, tmp_path / "run"):
        client.gather(client.map(time.sleep, [0.1] * 4, pure=False))
        client.gather(client.map(unlucky, range(4), pure=False), errors="skip")
    tables = records.load(tmp_path / "run")
    promises.validate(tables)
    tasks = tables["tasks"]
    failed, slept = tasks[tasks.status == "error"], tasks[tasks.status == "OK"]
    assert (len(failed), len(slept)) == (4, 4)
    assert failed.cpu_s.between(0.3, 0.6).all() and slept.cpu_s.between(0.0, 0.05).all()
    assert (failed.cpu_waiting_s >= 0).all() and (failed.cpu_turns >= 1).all()


def test_attempts_that_failed_are_counted_with_error_and_thread_time(client: Client, tmp_path: Path) -> None:
    def flaky(number: int, folder: str) -> int:
        time.sleep(0.1)
        attempts = Path(folder, str(number))
        with attempts.open("a") as file:
            file.write("x")
        if number % 4 == 0 and len(attempts.read_text()) < 4:
            raise OSError("no such luck")
        return number

    def work(client: Client) -> None:
        futures = client.map(flaky, range(8), folder=str(tmp_path), retries=5, pure=False)
        assert sum(client.gather(futures)) == 28

    (sentence,) = sentences(client, tmp_path / "run", work)
    assert sentence.startswith("6 attempts of 2 tasks (flaky) failed with OSError('no such luck') on worker-")
    assert re.search(r"; they took \d\.\d s of thread time\. All of these succeeded later\.$", sentence)


def test_a_task_that_raises_is_named_with_its_error(client: Client, tmp_path: Path) -> None:
    def divide(number: int) -> float:
        return 1 / number

    def work(client: Client) -> None:
        wait(client.map(divide, [0, 1, 2], pure=False))

    (sentence,) = sentences(client, tmp_path / "run", work)
    assert sentence.startswith("1 attempt of 1 task (divide) failed with ZeroDivisionError('")
    assert sentence.endswith(" It did not succeed later.")


def test_without_code_the_error_is_its_type_alone(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run", code=False):
        wait(client.submit(int, "secret", pure=False))
    failures = explain(open_trial(tmp_path / "run")).facts.failures
    assert [attempt.error for attempt in failures.attempts] == ["ValueError"]
    assert "secret" not in str(records.load(tmp_path / "run")["errors"].to_dict())


def number_of_tasks(dask_scheduler: Scheduler) -> int:
    return len(dask_scheduler.tasks)


def test_what_a_client_cancels_is_counted(client: Client, tmp_path: Path) -> None:
    def work(client: Client) -> None:
        futures = client.map(time.sleep, [0.3] * 8, pure=False)
        wait(futures[0])
        client.cancel(futures)
        until(lambda: client.run_on_scheduler(number_of_tasks) == 0, "the scheduler to forget the tasks")

    (sentence,) = sentences(client, tmp_path / "run", work)
    assert sentence.startswith("A client cancelled 8 tasks; the scheduler began to do so ")


def test_where_nothing_fails_nothing_is_said(client: Client, tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.gather(client.map(time.sleep, [0.05] * 8, pure=False, retries=3))

    assert sentences(client, tmp_path / "run", work) == []


def test_a_restart_of_the_cluster_is_said_and_its_deaths_are_not(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.gather(client.map(time.sleep, [0.05] * 4, pure=False))
        client.restart()
        client.gather(client.map(time.sleep, [0.05] * 4, pure=False))

    with LocalCluster(**LOCAL) as cluster, Client(cluster) as client:
        (sentence,) = sentences(client, tmp_path / "run", work)
    assert sentence.startswith("A client restarted the workers ")


def test_a_task_that_kills_workers_is_named_with_memory_and_limit(tmp_path: Path) -> None:
    def eat(number: int) -> int:
        eaten = []
        for _ in range(80 if number == 3 else 0):
            eaten.append(b"x" * 10_000_000)
            time.sleep(0.03)
        return len(eaten)

    def work(client: Client) -> None:
        future = client.submit(eat, 3, pure=False)
        wait(future)
        assert future.status == "error"

    limits = {"distributed.scheduler.allowed-failures": 1, "distributed.worker.memory.pause": False}
    with (
        dask.config.set(limits),
        LocalCluster(**LOCAL, memory_limit="300MB") as cluster,
        Client(cluster) as client,
    ):
        found = sentences(client, tmp_path / "run", work)
    ended = [sentence for sentence in found if "was ended by its nanny at " in sentence]
    assert len(ended) == 2 and all(" MB of a limit of 300 MB, " in sentence for sentence in ended), found
    assert found[-1] == "The task eat was given up, because 2 workers died while they had it (KilledWorker)."


def test_a_worker_that_dies_without_a_reason_known_to_dask_is_no_matter_of_memory(tmp_path: Path) -> None:
    def work(client: Client) -> None:
        client.submit(int, pure=False).result()
        wait(client.submit(os._exit, 1, pure=False))

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(**LOCAL) as cluster,
        Client(cluster) as client,
    ):
        found = sentences(client, tmp_path / "run", work)
    assert any(" died " in sentence and "task had not ended there" in sentence for sentence in found), found
    assert not any("nanny" in sentence for sentence in found)
    assert any("was given up, because 1 worker died" in sentence for sentence in found)
