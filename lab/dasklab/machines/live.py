"""Samples of all hosts while they run, each over one ssh connection, and the rates between two of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dasklab.machines import ssh
from dasklab.machines.inventory.ansible_inventory import Inventory

Sample = Mapping[str, Any]
"""What the guest program's step ``host.watch`` prints."""


@dataclass(frozen=True)
class Rates:
    """What a host did between two samples."""

    cpu: float
    """Share of all its CPUs, 0 to 1; time that the node took away counts as busy."""
    memory: float
    """Share of its memory, 0 to 1."""
    sent_mbit: float
    received_mbit: float
    """Mbit/s on the link under test."""
    retransmitted: float
    """TCP segments per second."""
    dropped: float
    """Frames per second that the link under test dropped."""
    links: Sequence[Mapping[str, Any]]
    """The impairments of its link."""


def rates(before: Sample, after: Sample) -> Rates | None:
    """Return the rates between two samples; None if no time passed, or the host was restarted in between."""
    seconds = after["time"] - before["time"]
    cpu = {name: after["cpu"][name] - value for name, value in before["cpu"].items()}
    link = {name: after["lab"][name] - value for name, value in before["lab"].items()}
    total = sum(cpu.values())
    if seconds <= 0 or total <= 0 or min(link.values()) < 0:
        return None
    return Rates(
        cpu=min(1.0, 1 - (cpu["idle_s"] + cpu["iowait_s"]) / total),  # the kernel's iowait may go back
        memory=after["memory_used"],
        sent_mbit=link["tx_bytes"] * 8e-6 / seconds,
        received_mbit=link["rx_bytes"] * 8e-6 / seconds,
        retransmitted=(after["tcp"]["RetransSegs"] - before["tcp"]["RetransSegs"]) / seconds,
        dropped=(link["rx_dropped"] + link["tx_dropped"]) / seconds,
        links=after["links"],
    )


class Watched:
    """The last rates of each host, or why it sends no samples any more. A thread per host fills it."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.rates: dict[str, Rates | None] = dict.fromkeys(hosts)
        self.problems: dict[str, str] = {}

    def read(self, host: str, lines: Iterable[str], problem: Callable[[], str]) -> None:
        """Read a host's samples until they end; then ``problem`` says why."""
        before: Sample | None = None
        for line in lines:
            after: Sample = json.loads(line)
            if before:
                self.rates[host] = rates(before, after)
            before = after
        self.problems[host] = problem()


@contextmanager
def watch(lab: Inventory, hosts: Sequence[str], program: str, interval_s: float) -> Iterator[Watched]:
    """Watch hosts in the background. At the end their programs end with the connections."""
    watched = Watched(hosts)
    words = shlex.join([program, "host", "watch", json.dumps({"interval_s": interval_s})])
    processes = {
        host: subprocess.Popen(
            [*ssh.command(lab, host), words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us
        )
        for host in hosts
    }
    threads = [
        threading.Thread(target=_read, args=(watched, host, process)) for host, process in processes.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield watched
    finally:
        for process in processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
        for process in processes.values():
            process.wait()


def _read(watched: Watched, host: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stderr
    stderr = process.stderr
    with process.stdout as lines, stderr:
        watched.read(host, lines, lambda: stderr.read().strip().rpartition("\n")[2])
