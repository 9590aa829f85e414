"""The client's own code that waits for a CPU on a busy machine is not its own code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dasklab
import pytest
from dasklab.breakdown.model.causes import CPU, USER_CODE
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial
from distributed import Client, LocalCluster

OTHERS = 3  # programs that compute on the same CPU
CPU_S = 0.6

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system keeps no thread on one CPU"
)


@contextmanager
def one_busy_cpu() -> Iterator[None]:
    """Keep this thread on one CPU, on which others compute."""
    before = os.sched_getaffinity(0)
    with ExitStack() as ending:
        os.sched_setaffinity(0, {min(before)})
        ending.callback(os.sched_setaffinity, 0, before)
        for _ in range(OTHERS):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            ending.callback(other.wait)
            ending.callback(other.kill)
        time.sleep(0.5)
        yield


def compute(cpu_s: float) -> None:
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


def test_code_of_the_client_on_a_busy_cpu(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.submit(sum, (1, 2)).result()
        with one_busy_cpu(), dasklab.record(client, tmp_path / "run"):
            begin = time.monotonic()
            compute(CPU_S)
            waited_s = time.monotonic() - begin - CPU_S
    found = explain(open_trial(tmp_path / "run")).summary.bottlenecks
    assert waited_s > CPU_S, "the others left the CPU to this test"
    assert waited_s / 2 < found[CPU, "client"] < 1.3 * waited_s
    assert found[USER_CODE, "client"] < CPU_S + waited_s / 2  # and waits for the interpreter
