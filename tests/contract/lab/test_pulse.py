"""Pauses of real processes: stopped, computing without releasing the GIL, blocked in the event loop."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.files import Attempt, Timings
from dasklab.paths import WORKLOADS
from dasklab.results.validity import verdict
from distributed import Client, LocalCluster

STOPPED_S = 4.0


@pytest.fixture(scope="module")
def pulse() -> Iterator[Any]:
    """The module ``_pulse``, imported as a workload imports it."""
    sys.path.insert(0, str(WORKLOADS))
    module = importlib.import_module("_pulse")
    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    sys.path.remove(str(WORKLOADS))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = str(tmp_path_factory.mktemp("workers"))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "local_directory": folder}
    with LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        yield client


def reasons(run_pauses: list[dict[str, Any]]) -> list[str]:
    """Return why a run with these pauses is invalid."""
    sample = {
        "repeat": 1,
        "warmup": False,
        "start": 0,
        "stop": 1,
        "duration_s": 1,
        "ok": True,
        "pauses": run_pauses,
    }
    timings = Timings.model_validate(
        {
            "workload": "w",
            "params": {},
            "tasks": None,
            "samples": [sample],
            "cluster": {"workers": 2, "threads": 2, "addresses": {}},
            "versions": {},
        }
    )
    attempt = Attempt(started=0, exit_status=0, wall_s=1, measuring_s=1, error=None)
    return list(verdict.pause_differences(timings, attempt, Tolerances()))


def test_stopped_worker_makes_the_run_invalid(pulse: Any, client: Client) -> None:
    pulse.watch(client)
    [stopped, other] = client.run(os.getpid).items()
    names = {stopped[0]: "worker-1", other[0]: "worker-2"}
    pulse.take(client, names)
    os.kill(stopped[1], signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(stopped[1], signal.SIGCONT)
    run_pauses = pulse.take(client, names)
    [reason] = reasons(run_pauses)
    assert reason.startswith("worker-1: the process was stopped for ") and reason.endswith(" in repeat 1")
    [pause] = [pause for pause in run_pauses if pause["process"] == "worker-1" and pause["lasted_s"] > 2]
    assert STOPPED_S - 0.5 <= pause["lasted_s"] < STOPPED_S + 2
    assert pause["suspended_s"] < 0.1


def hold_the_interpreter() -> None:
    """Hold the GIL for seconds, in one call of a C function."""
    end = time.monotonic() + 5  # the last call takes more than half of it
    size = 1_000_000
    while time.monotonic() < end:
        _ = 3**size
        size *= 2


def test_worker_that_holds_the_gil_is_not_mistaken_for_stopped(pulse: Any, client: Client) -> None:
    pulse.watch(client)
    pulse.take(client, {})
    client.submit(hold_the_interpreter, pure=False).result()
    run_pauses = pulse.take(client, {})
    assert max(pause["lasted_s"] for pause in run_pauses) > 2, (
        "the GIL was not held, so the test proves nothing"
    )
    assert reasons(run_pauses) == []


def test_blocked_event_loop_is_no_pause(pulse: Any, client: Client) -> None:
    pulse.watch(client)
    pulse.take(client, {})
    client.run(time.sleep, 3)
    assert reasons(pulse.take(client, {})) == []


def test_threads_end_with_the_runs(pulse: Any, client: Client) -> None:
    def threads() -> list[str]:
        import threading

        return [thread.name for thread in threading.enumerate() if thread.name == "dasklab-pulse"]

    pulse.watch(client)
    pulse.watch(client)
    assert set(map(len, client.run(threads).values())) == {1}
    pulse.end(client)
    time.sleep(1)
    assert set(map(len, client.run(threads).values())) == {0} == {len(threads())}
