"""Tasks that the recording does not see from start to end, and a pause that it does not see begin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import dasklab
import pytest
from dasklab import records
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import EXTERNAL, MEMORY, UNDIVIDED, UNMETERED
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster, Reschedule, Status, Worker

from tests.contract.record.clusters import LOCAL
from tests.waiting import until


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


def summary_of(folder: Path) -> Summary:
    return explain(open_trial(folder)).summary


def test_a_worker_that_was_paused_before_the_recording_is_known_to_be(tmp_path: Path) -> None:
    def set_status(status: str, dask_worker: Worker) -> None:
        dask_worker.status = Status[status]

    def status() -> str:
        return str(next(iter(client.scheduler_info()["workers"].values()))["status"])

    # without a limit Dask does not change the status itself
    with LocalCluster(**LOCAL | {"n_workers": 1}, memory_limit=0) as cluster, Client(cluster) as client:
        client.run(set_status, "paused")
        until(lambda: status() == "paused", "the worker to be paused")
        resume = Timer(1.0, client.run, [set_status, "running"])
        with dasklab.record(client, tmp_path / "run"):
            resume.start()
            assert client.submit(pow, 2, 3, pure=False).result() == 8
        resume.join()
    assert summary_of(tmp_path / "run").ranked()[0][:2] == (MEMORY, "worker-0")


def test_an_attempt_that_dies_with_its_worker_is_a_running_task(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    with dasklab.record(client, tmp_path / "run"):
        future = client.submit(time.sleep, 3.0, pure=False)
        time.sleep(1.5)  # heartbeats of its worker say that it runs
        (address,) = (worker for worker, keys in client.processing().items() if keys)
        nanny = next(nanny for nanny in cluster.workers.values() if nanny.worker_address == address)
        nanny.process.process.kill()
        future.result()
    tasks = records.load(tmp_path / "run")["tasks"]
    lost = tasks[tasks.status == "lost"]
    assert lost.worker.isin(["worker-0", "worker-1"]).tolist() == [True]
    assert (lost.stop_s - lost.start_s).min() > 1.0
    assert summary_of(tmp_path / "run").path_by_cause[EXTERNAL] > 4.0  # of both attempts


def test_threads_whose_tasks_go_on_when_the_block_ends_are_not_idle(client: Client, tmp_path: Path) -> None:
    with dasklab.record(client, tmp_path / "run"):
        futures = client.map(time.sleep, [3.0, 3.0], pure=False)
        until(lambda: all(client.processing().values()), "both tasks to be sent")
        time.sleep(1.0)
    assert summary_of(tmp_path / "run").by_cause[EXTERNAL] > 0.9
    client.gather(futures)


def test_a_thread_whose_task_was_cancelled_is_not_idle(client: Client, tmp_path: Path) -> None:
    """A thread cannot be stopped: the first two tasks sleep on."""
    with dasklab.record(client, tmp_path / "run"):
        futures = client.map(time.sleep, [1.5, 1.5], pure=False)
        until(lambda: all(client.processing().values()), "both tasks to be sent")
        time.sleep(0.3)
        client.cancel(futures)
        client.gather(client.map(time.sleep, [0.1, 0.1], pure=False))
    tasks = records.load(tmp_path / "run")["tasks"]
    cancelled = tasks[tasks.status == "cancelled"]
    assert cancelled.worker.tolist() != [] and (cancelled.stop_s - cancelled.start_s).between(1.4, 2.5).all()
    assert len(cancelled) == 2
    assert summary_of(tmp_path / "run").by_cause[EXTERNAL] > 1.4


def test_a_task_that_gives_itself_back_keeps_its_thread_until_then(client: Client, tmp_path: Path) -> None:
    """As tasks of a shuffle do; the path leads from the second attempt through the first."""

    def attempt(path: str) -> None:
        time.sleep(0.5)
        if not Path(path).exists():
            Path(path).touch()
            raise Reschedule

    with dasklab.record(client, tmp_path / "run"):
        client.submit(attempt, str(tmp_path / "seen"), pure=False).result()
    tasks = records.load(tmp_path / "run")["tasks"].sort_values("start_s")
    assert tasks.status.tolist() == ["rescheduled", "OK"]
    assert tasks.trigger.tolist() == ["", tasks.key.iloc[0]]
    summary = summary_of(tmp_path / "run")
    assert UNDIVIDED not in summary.path_by_cause or summary.path_by_cause[UNDIVIDED] < 0.1
    assert summary.path_by_cause[EXTERNAL] + summary.path_by_cause.get(UNMETERED, 0.0) > 0.9
