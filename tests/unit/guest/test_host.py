"""The settings of a host: only what differs is changed, and what a host cannot do is reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from dasklab.machines import live
from dasklab.running.playbooks import collect
from dasklab_guest import host
from dasklab_guest.common import HostError

from tests.unit.guest.test_common import LINKS

SETTINGS = {"mtu": 0, "offloads": {}, "capture_offloads": {}}


def test_counters_of_this_machine_are_read() -> None:
    assert host.cpu()["user_s"] > 0
    assert set(host.tcp()) == {"InSegs", "OutSegs", "RetransSegs", "OutRsts"}


def test_only_offloads_that_differ_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "offloads", lambda name: {"tso": True, "gro": False})
    assert host.plan_offloads("eth1", {"tso": True, "gro": False}) == []
    change = {"why": "eth1 tso: off", "argv": ["ethtool", "-K", "eth1", "tso", "off"]}
    assert host.plan_offloads("eth1", {"tso": False}) == [change]


def test_only_sysctls_that_differ_are_changed() -> None:
    assert host.plan_sysctl("kernel.ostype", "Linux") == []
    assert host.plan_sysctl("kernel.ostype", "Plan 9")[0]["why"] == "kernel.ostype: Linux -> Plan 9"


def test_mtu_is_set_where_it_differs() -> None:
    link = {"ifname": "eth1", "mtu": 1500}
    assert host.plan_mtu(link, 0) == host.plan_mtu({**link, "mtu": 1450}, 1450) == []
    [change] = host.plan_mtu(link, 1450)
    assert change["why"] == "eth1 mtu: 1500 -> 1450"
    assert change["argv"] == ["ip", "link", "set", "dev", "eth1", "mtu", "1450"]


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has no sysctl ``net.core.none``."""
    identity = {"lab": {"name": "eth1"}, "capture": None, "management_address": "10.77.0.11"}
    sysctls = {"net.core.none": 1, "kernel.ostype": "Plan 9"}
    monkeypatch.setattr(host, "host", lambda: identity)
    monkeypatch.setattr(host, "settings", lambda: {**SETTINGS, "sysctls": sysctls})
    monkeypatch.setattr(host, "interfaces", lambda: LINKS)

    def run(argv: Sequence[str]) -> str:
        if "net.core.none=1" in argv:
            raise HostError("sysctl: cannot stat /proc/sys/net/core/none")
        return ""

    monkeypatch.setattr(host, "run", run)


def test_change_that_a_host_cannot_make_does_not_count(container: None) -> None:
    """A container lacks some sysctls: a second run must still report changed=0."""
    answer = host.apply()
    assert answer["changes"] == ["kernel.ostype: Linux -> Plan 9"]
    assert answer["unsupported"] == ["sysctl: cannot stat /proc/sys/net/core/none"]


def test_check_reports_the_same_changes(container: None) -> None:
    answer = host.apply(check=True)
    assert answer["changes"] == ["kernel.ostype: Linux -> Plan 9"]
    assert answer["unsupported"] == ["/proc/sys/net/core/none does not exist"]


def test_clock_is_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[Any] = []
    monkeypatch.setattr(host.time, "clock_settime", lambda *arguments: clock.append(arguments))
    monkeypatch.setattr(host.time, "time", lambda: 1000.0)
    assert host.shift_clock(7.25, check=True)["changes"] == ["clock: -7.2 s"]
    assert clock == []
    assert host.shift_clock(7.25)["changes"] == ["clock: -7.2 s"]
    assert clock == [(host.time.CLOCK_REALTIME, 992.75)]


def test_container_reports_that_its_clock_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(clock: int, value: float) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(host.time, "clock_settime", refuse)
    answer = host.shift_clock(-60)
    assert answer["changes"] == []
    assert answer["unsupported"] == ["the clock cannot be set: Operation not permitted"]


def test_clock_offset_includes_the_way_of_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.time, "time", lambda: 1000.0)
    monkeypatch.setenv("DASKLAB_SENT_S", "998.5")
    assert host.clock() == {"time_s": 1000.0, "ahead_s": 1.5}
    monkeypatch.delenv("DASKLAB_SENT_S")
    assert host.clock() == {"time_s": 1000.0, "ahead_s": None}


def test_guest_and_node_report_the_same_cpu_times() -> None:
    """The guest program is installed without dasklab, so it has a list of its own."""
    assert collect.NODE_CPU_FIELDS == host.CPU_FIELDS


def test_container_reports_its_own_cpus_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """`top` showed the node's CPUs and memory, and the report two cores where the lab gives one."""
    monkeypatch.setattr(host, "tcp", dict)
    monkeypatch.setattr(host, "meminfo", lambda: {"MemTotal": 8_000_000, "MemAvailable": 2_000_000})
    monkeypatch.setattr(host, "requested_links", list)
    monkeypatch.setattr(host.cgroup, "memory_used", lambda total_bytes: 0.25)
    monkeypatch.setattr(host.cgroup, "cpus", lambda cores: 1.0)
    used_s = iter((10.0, 10.5))
    monkeypatch.setattr(host.cgroup, "cpu_s", lambda: next(used_s))
    clock = iter((100.0, 102.0))
    monkeypatch.setattr(host.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(host.time, "time", iter((1.0, 3.0, 4.0)).__next__)
    before, after = host.sample("lo", own=True), host.sample("lo", own=True)
    tcp = {"RetransSegs": 0}
    found = live.rates({**before, "tcp": tcp}, {**after, "tcp": tcp})
    assert found and (found.cpu, found.memory) == (0.25, 0.25)
    whole = host.sample("lo", own=False)
    assert (whole["memory_used"], whole["cpu"]["user_s"] > 0) == (0.75, True)
