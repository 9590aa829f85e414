"""A process without a child hangs if it sleeps, and works if it computes or waits for a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.running.playbooks.watchdog import IDLE_S, Watchdog

from tests.waiting import until

LOSS_LIMIT_S = 60  # within which a lost host or worker ends a trial


@contextmanager
def running(program: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_sleeping_process_hangs() -> None:
    with running("import time; time.sleep(600)") as pid:
        watchdog = Watchdog(pid, None, idle_s=0.5)
        until(watchdog.problem, "the watchdog")


def test_computing_process_works_even_if_it_gets_half_a_cpu() -> None:
    with running("while True: pass") as pid, running("while True: pass") as rival:
        for each in (pid, rival):
            os.sched_setaffinity(each, {min(os.sched_getaffinity(0))})
        watchdog, end = Watchdog(pid, None, idle_s=0.5), time.monotonic() + 3
        while time.monotonic() < end:
            assert watchdog.problem() is None
            time.sleep(0.1)


def test_losses_are_noticed_in_time() -> None:
    inventory = Inventory(DEFAULT)
    for host in inventory.hosts():
        interval_s, count = (
            int(inventory.value(host, f"mitogen_ssh_keepalive_{name}")) for name in ("interval", "count")
        )
        assert interval_s * (count + 1) < LOSS_LIMIT_S
    assert IDLE_S < LOSS_LIMIT_S
