"""The other commands on the guests: what they make of the answers of the programs that they call."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

LINKS = [
    {"ifname": "eth0", "address": "02:da:5c:23:8d:00", "addr_info": [{"local": "10.77.0.11"}]},
    {"ifname": "eth1", "address": "02:da:5c:23:8d:01", "addr_info": [{"local": "10.77.1.11"}]},
    {"ifname": "eth2", "address": "02:da:5c:23:8d:02", "addr_info": []},
]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({"mac": "02:DA:5C:23:8D:01", "address": "10.9.9.9"}, "eth1"),
        ({"name": "", "mac": "", "address": "10.77.1.11"}, "eth1"),
        ({"name": "eth2", "mac": ""}, "eth2"),
        ({"mac": "02:DA:5C:23:8D:09", "address": "10.77.1.11"}, None),
        ({}, None),
    ],
)
def test_interfaces_are_found_by_name_mac_or_address(
    common: ModuleType, where: dict[str, str], name: str | None
) -> None:
    found = common.find(LINKS, where)
    assert (found and found["ifname"]) == name


def test_the_management_interface_is_never_the_lab_link(common: ModuleType) -> None:
    settings = {"lab": {"address": "10.77.0.11"}, "management_address": "10.77.0.11"}
    with pytest.raises(common.HostError, match="needs a NIC of its own"):
        common.lab_link(settings, LINKS)


def test_a_missing_lab_link_is_an_error(common: ModuleType) -> None:
    settings = {"lab": {"mac": "02:00:00:00:00:00"}, "management_address": "10.77.0.11"}
    with pytest.raises(common.HostError, match="no interface is as"):
        common.lab_link(settings, LINKS)


def test_counters_of_this_machine_are_read(common: ModuleType, host: ModuleType) -> None:
    assert host.cpu()["user_s"] > 0
    assert set(host.tcp()) == {"InSegs", "OutSegs", "RetransSegs", "OutRsts"}
    assert common.softnet_dropped() >= 0


def test_only_what_differs_is_changed(host: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "offloads", lambda name: {"tso": True, "gro": False})
    assert host.plan_offloads("eth1", {"tso": True, "gro": False}) == []
    assert host.plan_offloads("eth1", {"tso": False}) == [
        {"why": "eth1 tso: off", "argv": ["ethtool", "-K", "eth1", "tso", "off"]}
    ]
    assert host.plan_sysctl("kernel.ostype", "Linux") == []
    assert host.plan_sysctl("kernel.ostype", "Plan 9")[0]["why"] == "kernel.ostype: Linux -> Plan 9"


def test_the_link_between_nodes_gets_smaller_frames(host: ModuleType) -> None:
    link = {"ifname": "eth1", "mtu": 1500}
    assert host.plan_mtu(link, 0) == host.plan_mtu(link | {"mtu": 1450}, 1450) == []
    (change,) = host.plan_mtu(link, 1450)
    assert change["why"] == "eth1 mtu: 1500 -> 1450"
    assert change["argv"] == ["ip", "link", "set", "dev", "eth1", "mtu", "1450"]


def test_everything_is_recorded_once_and_the_scheduler_whole(capture: ModuleType) -> None:
    whole, cut = capture.tiers("10.77.1.12", 512)
    assert cut["filter"] == f"not {whole['filter']}"
    assert whole["snaplen_bytes"] > 65535 > cut["snaplen_bytes"] == 512


def test_a_capture_carries_its_time_to_live(capture: ModuleType) -> None:
    asked = {"ttl_s": 600, "buffer_mib": 32, "file_max_mb": 100}
    words = capture.command(capture.tiers("10.77.1.12", 512)[1], "eth2", asked)
    assert "--property=RuntimeMaxSec=600" in words
    assert "--property=LimitFSIZE=100000000" in words
    assert words[words.index("tcpdump") :][:6] == ["tcpdump", "-n", "-Z", "root", "-i", "eth2"]


def test_tcpdump_counters(capture: ModuleType) -> None:
    log = (
        "tcpdump: listening on eth2\n9492 packets captured\n9500 packets received by filter\n"
        "8 packets dropped by kernel\n"
    )
    assert capture.counters(log) == {
        "frames": 9492,
        "received": 9500,
        "dropped_kernel": 8,
        "dropped_interface": 0,
    }
    assert capture.counters(log + "3 packets dropped by interface\n")["dropped_interface"] == 3
    assert capture.counters("1 packet captured")["frames"] == 1
    assert capture.counters(f"7 packets captured\n{log}")["frames"] == 9492  # asked before, as a stop does


def test_frames_that_the_kernel_has_and_tcpdump_has_not_written(capture: ModuleType) -> None:
    said = "{} packets captured\n9500 packets received by filter\n8 packets dropped by kernel\n"
    assert capture.left_behind(capture.counters(said.format(9492))) == 0
    assert capture.left_behind(capture.counters(said.format(9400))) == 92
    assert capture.left_behind(capture.counters("tcpdump: listening on eth2")) is None
    assert capture.left_behind(capture.counters("9492 packets captured\n")) is None  # cut off there


def test_a_capture_that_was_killed_does_not_claim_that_nothing_was_lost(capture: ModuleType) -> None:
    parts = [capture.counters("tcpdump: listening on eth2"), capture.counters("5 packets captured")]
    assert parts[0]["frames"] is None
    assert capture.total(parts, "frames") is None


def test_ping(probe: ModuleType) -> None:
    text = (
        "64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=0.352 ms\nRequest timeout\n64 bytes: time=51.6 ms"
    )
    assert probe.pinged(text) == [0.352, 51.6]


def test_pings_under_load_are_those_sent_while_iperf_was_at_it(probe: ModuleType) -> None:
    text = (
        "[100.500] 64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=0.3 ms\n"  # not yet connected
        "[101.040] 64 bytes from 10.77.1.13: icmp_seq=2 ttl=64 time=40.0 ms\n"
        "[102.050] 64 bytes from 10.77.1.13: icmp_seq=3 ttl=64 time=50.0 ms\n"
        "[102.050] 64 bytes from 10.77.1.13: icmp_seq=3 ttl=64 time=50.0 ms (DUP!)\n"
        "[103.900] 64 bytes from 10.77.1.13: icmp_seq=4 ttl=64 time=0.3 ms\n"  # results are told
    )
    pings = probe.pinged_at(text)
    assert [sent for sent, _ in pings] == pytest.approx([100.4997, 101.0, 102.0, 103.8997])
    assert probe.under_load(pings, 104.0, 3.0) == [40.0, 50.0]


@pytest.mark.parametrize("trouble", [False, True])
def test_pings_accompany_a_run_of_iperf_and_end_with_it(
    probe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: bool
) -> None:
    ping, called = tmp_path / "ping", tmp_path / "called"
    ping.write_text(
        '#!/bin/sh\necho "[101.0] 64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=7.5 ms"\n'
        f'echo "$$ $*" > {called}.draft; mv {called}.draft {called}; exec sleep 60\n'
    )
    ping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(probe, "time", SimpleNamespace(time=lambda: 103.0))

    def loaded(address: str, proto: str, seconds: float) -> dict[str, float]:
        until = time.monotonic() + 20
        while not called.exists() and time.monotonic() < until:
            time.sleep(0.01)
        if trouble:
            raise probe.HostError("no route")
        return {"mbit": 1.0}

    monkeypatch.setattr(probe, "loaded", loaded)
    if trouble:
        with pytest.raises(probe.HostError):
            probe.iperf("10.77.1.13", "tcp", 3.0)
    else:
        assert probe.iperf("10.77.1.13", "tcp", 3.0) == {"mbit": 1.0, "rtt_ms": [7.5]}
    pid, *words = called.read_text().split()
    assert words == ["-n", "-D", "-i", "0.1", "10.77.1.13"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_iperf_over_tcp_and_udp(probe: ModuleType) -> None:
    received = {"bits_per_second": 9.41e8, "seconds": 3.0}
    tcp = {"end": {"sum_sent": {"retransmits": 4}, "sum_received": received}}
    assert probe.measured(tcp) == {"mbit": 941.0, "seconds": 3.0, "retransmits": 4}
    udp = {"end": {"sum_sent": {}, "sum_received": {**received, "lost_percent": 2.5, "packets": 100}}}
    assert probe.measured(udp) == {"mbit": 941.0, "seconds": 3.0, "lost_pct": 2.5, "frames": 100}


@pytest.mark.parametrize("document", [{"error": "unable to connect to server"}, {"start": {}}])
def test_a_probe_that_failed_is_an_error_and_no_number(probe: ModuleType, document: dict[str, str]) -> None:
    with pytest.raises(probe.HostError):
        probe.measured(document)


def test_one_failed_probe_does_not_end_the_others(probe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def iperf(address: str, proto: str, seconds: float) -> dict[str, float]:
        if proto == "udp":
            raise probe.HostError("lost")
        return {"mbit": 1.0}

    monkeypatch.setattr(probe, "iperf", iperf)
    asked = {"to": ["worker-1"], "runs": 2, "seconds": 1, "udp": True}
    answer = probe.throughput("scheduler", asked, {"worker-1": "10.77.1.13"})
    assert [entry["mbit"] for entry in answer["throughput"]] == [1.0, 1.0]
    assert [entry["error"] for entry in answer["errors"]] == ["lost", "lost"]
    assert json.dumps(answer)


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        ("UnsupportedError", 3, '{"schema": 1, "unsupported": "no netem"}\n'),
        ("HostError", "dasklab_link: no netem", ""),
    ],
)
def test_trouble_is_one_line_and_an_exit_status(
    common: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: str,
    status: object,
    said: str,
) -> None:
    def answer(argv: list[str]) -> None:
        raise getattr(common, trouble)("no netem")

    monkeypatch.setattr(common.sys, "argv", ["/opt/dasklab/bin/dasklab_link.py", "show"])
    with pytest.raises(SystemExit) as ended:
        common.main(answer)
    assert ended.value.code == status
    assert capsys.readouterr().out == said


def test_a_change_that_this_host_cannot_make_is_no_change(
    common: ModuleType, host: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container some sysctls are not there: `up` again must say changed=0."""
    settings = {
        "sysctls": {"net.core.none": 1, "kernel.ostype": "Plan 9"},
        "mtu": 0,
        "offloads": {},
        "capture_offloads": {},
    }
    identity = {"lab": {"name": "eth1"}, "capture": None, "management_address": "10.77.0.11"}
    monkeypatch.setattr(host, "config", lambda path="host": identity if path == "host" else settings)
    monkeypatch.setattr(host, "addresses", lambda: LINKS)

    def run(argv: list[str]) -> str:
        if "net.core.none=1" in argv:
            raise common.HostError("sysctl: cannot stat /proc/sys/net/core/none")
        return ""

    monkeypatch.setattr(host, "run", run)
    done = host.apply()
    assert done["changes"] == ["kernel.ostype: Linux -> Plan 9"]
    assert done["unsupported"] == ["sysctl: cannot stat /proc/sys/net/core/none"]
    checked = host.apply(check=True)
    assert checked["changes"] == done["changes"]
    assert checked["unsupported"] == ["/proc/sys/net/core/none is not there"]


def test_the_driver_of_what_software_makes_is_its_kind(common: ModuleType) -> None:
    assert common.driver({"ifname": "nosuch0", "linkinfo": {"info_kind": "veth"}}) == "veth"
    assert common.driver({"ifname": "nosuch0"}) == ""


def test_a_clock_is_shifted_and_a_container_s_is_not(
    host: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[int, float]] = []
    monkeypatch.setattr(host.time, "clock_settime", lambda clock, value: kept.append((clock, value)))
    monkeypatch.setattr(host.time, "time", lambda: 1000.0)
    assert host.answer(["shift-clock", "-7.25", "--check"])["changes"] == ["clock: -7.2 s"]
    assert kept == []
    assert host.answer(["shift-clock", "-7.25"])["changes"] == ["clock: -7.2 s"]
    assert kept == [(host.time.CLOCK_REALTIME, 992.75)]

    def refuse(clock: int, value: float) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(host.time, "clock_settime", refuse)
    refused = host.answer(["shift-clock", "60"])
    assert (refused["changes"], refused["unsupported"]) == (
        [],
        ["the clock cannot be set here: Operation not permitted"],
    )
