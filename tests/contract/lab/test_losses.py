"""A workload ends soon after a worker of its cluster is lost, unless faults are meant to end one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dasklab.paths import WORKLOADS
from distributed import Client

from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

WORK_S = 60
LIMIT_S = 60  # of what the lab promises


@dataclass
class Cluster:
    """A scheduler and workers as the lab's services start them."""

    address: str
    workers: list[subprocess.Popen[bytes]]

    def ask(self, question: Any) -> Any:
        """Return what a function answers on the scheduler."""
        with Client(self.address, timeout=PATIENCE_S, set_as_default=False) as client:
            return client.run_on_scheduler(question)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    address = f"127.0.0.1:{free_port()}"
    host, port = address.split(":")
    commands = [["scheduler", "--host", host, "--port", port, "--no-dashboard"]]
    options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)]
    commands += [["worker", f"tcp://{address}", *options] for _ in range(2)]
    with (tmp_path / "log").open("wb") as log, contextlib.ExitStack() as ended:
        processes = []
        for words in commands:
            process = subprocess.Popen([sys.executable, "-m", "dask", *words], stdout=log, stderr=log)
            ended.callback(process.wait)
            ended.callback(process.kill)
            processes.append(process)
        yield Cluster(f"tcp://{address}", processes[1:])


@contextlib.contextmanager
def workload(cluster: Cluster, output: Path, workers: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a workload whose only run takes WORK_S on two workers."""
    params = json.dumps({"tasks": WORK_S * 2 * 10, "task_ms": 100})
    words = [sys.executable, str(WORKLOADS / "parallel_tasks.py"), "--scheduler", cluster.address]
    words += ["--repeats", "1", "--warmups", "0", "--params", params, "--workers", str(workers)]
    words += ["--timeout-s", "600", "--output", str(output), *more]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def number_of_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def test_lost_worker_ends_the_workload(cluster: Cluster, tmp_path: Path) -> None:
    with workload(cluster, tmp_path / "timings.json", 2) as process:
        until(lambda: process.poll() is not None or cluster.ask(number_of_tasks) > 100, "the run")
        cluster.workers[0].kill()
        start_s = time.monotonic()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - start_s < WORK_S / 2
    assert process.returncode == 4
    assert said.startswith("the worker at tcp://127.0.0.1:") and said.endswith(" was lost\n")
    assert said.count("\n") == 1
    assert not (tmp_path / "timings.json").exists()


def test_worker_that_never_connects_is_not_waited_for_till_the_end(cluster: Cluster, tmp_path: Path) -> None:
    start_s = time.monotonic()
    with workload(cluster, tmp_path / "timings.json", 3) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    assert said == "2 of 3 workers connected, and no other one within 45 s\n"
    assert time.monotonic() - start_s < LIMIT_S + 15  # and the time that the programs need to start


def test_worker_that_a_fault_ends_is_none_of_the_losses(cluster: Cluster, tmp_path: Path) -> None:
    options = ["--signal", str(tmp_path / "signal"), "--params", '{"tasks": 60, "task_ms": 100}']
    with workload(cluster, tmp_path / "timings.json", 2, *options) as process:
        until(lambda: process.poll() is not None or (tmp_path / "signal").exists(), "the first timed repeat")
        cluster.workers[0].kill()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert json.loads((tmp_path / "timings.json").read_text())["cluster"]["workers"] == 1
