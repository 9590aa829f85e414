"""Simulations on a real Dask cluster of one scheduler process and worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dasklab
import psutil
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.predict.engine import processes
from dasklab.predict.engine.choice import simulations_on
from distributed import Client

from tests.ports import free_port
from tests.unit.dasklab.sim.samples import scenario
from tests.waiting import PATIENCE_S, until

ANOTHER_DASKLAB = "raise SystemExit('this is not the code that was sent')\n"


@contextmanager
def dask_process(log: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdout=output,
            stderr=output,
            env=os.environ | variables,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


class DaskCluster:
    """One scheduler, and workers that have another dasklab, which cannot simulate."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack, self.workers = folder, stack, 0
        self.address = f"tcp://127.0.0.1:{free_port()}"
        (folder / "dasklab").mkdir()
        (folder / "dasklab" / "__init__.py").write_text(ANOTHER_DASKLAB)
        host = ("--host", self.address, "--no-dashboard")
        stack.enter_context(dask_process(folder / "scheduler.log", "scheduler", *host))

    def add_worker(self) -> subprocess.Popen[bytes]:
        self.workers += 1
        name = f"worker-{self.workers}"
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name]
        options += ["--local-directory", str(self.folder / name)]
        log, elsewhere = self.folder / f"{name}.log", {"PYTHONPATH": str(self.folder)}
        worker = self.stack.enter_context(dask_process(log, "worker", self.address, *options, **elsewhere))
        with Client(self.address, timeout=PATIENCE_S) as client:
            client.wait_for_workers(self.workers, timeout=PATIENCE_S)
        return worker


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaskCluster]:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cluster"
    folder.mkdir()
    with ExitStack() as stack:
        yield DaskCluster(folder, stack)


def keys_of_tasks(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.tasks)


def without_usage(outcome: Outcome) -> Outcome:
    return outcome.model_copy(update={"cpu_s": 0.0, "memory_mb": 0.0})


def simulations_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if "dasklab.sim" in child.cmdline()]


def test_outcomes_are_those_of_one_machine_also_if_a_worker_dies(cluster: DaskCluster) -> None:
    victim, survivor = cluster.add_worker(), cluster.add_worker()
    scenarios = [scenario(seed=seed) for seed in (1, 2, 3)]

    def kill_while_it_simulates() -> None:
        until(lambda: simulations_of(victim), "a simulation on the worker that is killed")
        victim.kill()

    with simulations_on(cluster.address), ThreadPoolExecutor() as pool:
        death = pool.submit(kill_while_it_simulates)
        remote = processes.simulate_all(scenarios)
        death.result()
    assert victim.wait(PATIENCE_S) == -signal.SIGKILL
    assert survivor.poll() is None
    local = processes.simulate_all(scenarios)
    assert [without_usage(outcome) for outcome in remote] == [without_usage(outcome) for outcome in local]


def test_interruption_ends_the_simulations_and_leaves_nothing_on_the_cluster(cluster: DaskCluster) -> None:
    worker = cluster.add_worker()

    def interrupt(outcome: Outcome) -> None:
        until(lambda: simulations_of(worker), "a second simulation")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), simulations_on(cluster.address):
        processes.simulate_all([scenario(seed=seed) for seed in range(1, 9)], interrupt)
    until(lambda: not simulations_of(worker), "the end of the simulation")
    assert not list((cluster.folder / "worker-1").rglob("dasklab*"))
    with Client(cluster.address) as client:
        until(lambda: not client.run_on_scheduler(keys_of_tasks), "the scheduler to forget the tasks")
    with simulations_on(None):  # it goes on where it stopped
        start: list[int] = []
        processes.simulate_all([scenario(seed=1)], lambda outcome: start.append(outcome.seed))
    assert start == [1]


def test_what_was_simulated_is_kept(cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulations_on(None):
        [before] = processes.simulate_all([scenario(seed=1)])
    monkeypatch.setattr("sys.executable", "/nonexistent")
    with simulations_on(None):
        [after] = processes.simulate_all([scenario(seed=1)])
        with pytest.raises(OSError, match="nonexistent"):
            processes.simulate_all([scenario(seed=2)])
    assert after == before


def test_clusters_that_cannot_or_must_not_simulate_are_refused(cluster: DaskCluster, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the cluster has no workers"), simulations_on(cluster.address):
        pass
    cluster.add_worker()
    with Client(cluster.address) as client:
        recorded = pytest.raises(LabError, match="this cluster is being recorded")
        with dasklab.record(client, tmp_path / "record"), recorded, simulations_on(cluster.address):
            pass
    with pytest.raises(LabError, match="is the scheduler running"), simulations_on("tcp://127.0.0.1:9"):
        pass


def test_run_refuses_a_cluster_for_measurements() -> None:
    result = CliRunner().invoke(main, ["run", "delay_worker", "--on", "tcp://127.0.0.1:8786"])
    assert result.exit_code == 2
    assert "--on is for simulations" in result.output
