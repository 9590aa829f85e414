"""What the recorder reads of its host: hardware that is up, segments sent again."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from dasklab.records.recorder import process


def interface(folder: Path, name: str, speed: str, hardware: bool = True) -> None:
    (folder / name).mkdir()
    (folder / name / "speed").write_text(speed)
    if hardware:
        (folder / name / "device").mkdir()


def test_only_hardware_that_is_up_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interface(tmp_path, "eth0", "1000\n")
    interface(tmp_path, "ib0", "-1\n")
    interface(tmp_path, "docker0", "10000\n", hardware=False)
    (tmp_path / "lo").mkdir()
    addresses = [
        SimpleNamespace(family=socket.AF_INET, address="10.0.0.1"),
        SimpleNamespace(family=socket.AF_INET6, address="fe80::1%eth0"),
        SimpleNamespace(family=socket.AF_PACKET, address="02:00:00:00:00:01"),
    ]
    every = dict.fromkeys(("eth0", "ib0", "docker0", "lo"), addresses)
    monkeypatch.setattr(process.psutil, "net_if_addrs", lambda: every)
    assert list(process.network_interfaces(tmp_path)) == [
        ("eth0", "10.0.0.1", 1000.0),
        ("eth0", "fe80::1", 1000.0),
    ]


def test_psutil_knows_the_interfaces_of_other_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {
        "Ethernet": SimpleNamespace(isup=True, speed=1000),
        "Wi-Fi": SimpleNamespace(isup=False, speed=300),
        "Loopback Pseudo-Interface 1": SimpleNamespace(isup=True, speed=1073),
        "vEthernet (WSL)": SimpleNamespace(isup=True, speed=10_000),
    }
    addresses = [SimpleNamespace(family=socket.AF_INET, address="10.0.0.1")]
    monkeypatch.setattr(process.psutil, "net_if_stats", lambda: states)
    monkeypatch.setattr(process.psutil, "net_if_addrs", lambda: dict.fromkeys(states, addresses))
    found = list(process.network_interfaces(tmp_path / "no such folder"))
    assert found == [("Ethernet", "10.0.0.1", 1000.0)]


ON_LINUX = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="only Linux knows how long threads waited for a CPU"
)


@ON_LINUX
def test_waits_of_threads_that_have_ended_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {threading.get_native_id(): 1.0}
    use, unknown = process.ThreadCpu, process.ThreadCpu()
    monkeypatch.setattr(use, "of", lambda thread: use(0.0, known[thread]) if thread in known else unknown)
    waits, ends = process.ThreadWaits(), threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    known[other.native_id or 0] = 2.0
    assert waits.seconds() == 3.0
    ends.set()
    other.join()
    del known[other.native_id or 0]
    assert waits.seconds() == waits.seconds() == 3.0
    known[threading.get_native_id()] = 0.5  # a new thread with the number of one that ended
    assert waits.seconds() == 3.5


@ON_LINUX
def test_a_thread_has_waited_for_a_cpu_or_nobody_knows() -> None:
    own = process.ThreadCpu.of(threading.get_native_id())
    assert own.is_known and own.ran_s > 0 and own.waited_s >= 0
    unknown = process.ThreadCpu.of(2**30)
    assert not unknown.is_known and all(map(math.isnan, unknown))


@ON_LINUX
def test_a_thread_is_put_on_a_cpu_each_time_that_it_wakes() -> None:
    before = process.ThreadCpu.of(threading.get_native_id())
    for _ in range(5):
        time.sleep(0.001)
    assert process.ThreadCpu.of(threading.get_native_id()).since(before).times >= 5


def test_the_kernel_counts_segments_that_were_sent_again() -> None:
    counters = process.kernel_counters()
    assert counters[process.RETRANSMITTED] >= 0


def test_a_machine_is_looked_at_seldom_and_has_no_more_than_its_cpus_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, cpus = process.machine()
    assert name and cpus >= 1
    monkeypatch.setattr(process, "LOOK_SHARE", 1.0)
    machine, start = process.MachineCpu(), time.perf_counter()
    before = machine.seconds()
    assert before > sum(os.times()[:2])  # this process is one of the machine's programs
    time.sleep(0.2)
    used_s, passed_s = machine.seconds() - before, time.perf_counter() - start
    assert used_s <= cpus * (passed_s + 0.05)
    monkeypatch.setattr(process, "LOOK_SHARE", 1e-12)
    machine.due = 0.0
    assert not math.isnan(machine.seconds()) and math.isnan(machine.seconds())
