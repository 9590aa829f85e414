"""The probes: what they make of ping's and iperf3's output, and what a failed one becomes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from dasklab_guest import probe
from dasklab_guest.common import HostError


def test_ping_samples() -> None:
    text = (
        "64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=0.352 ms\nRequest timeout\n64 bytes: time=51.6 ms"
    )
    assert probe.parse_ping(text) == [0.352, 51.6]


def test_only_pings_sent_while_iperf_loaded_the_link_count() -> None:
    text = (
        "[100.500] 64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=0.3 ms\n"  # not yet connected
        "[101.040] 64 bytes from 10.77.1.13: icmp_seq=2 ttl=64 time=40.0 ms\n"
        "[102.050] 64 bytes from 10.77.1.13: icmp_seq=3 ttl=64 time=50.0 ms\n"
        "[102.050] 64 bytes from 10.77.1.13: icmp_seq=3 ttl=64 time=50.0 ms (DUP!)\n"
        "[103.900] 64 bytes from 10.77.1.13: icmp_seq=4 ttl=64 time=0.3 ms\n"  # results are exchanged
    )
    pings = probe.parse_timed_ping(text)
    assert [sent_s for sent_s, _ in pings] == pytest.approx([100.4997, 101.0, 102.0, 103.8997])
    assert probe.under_load(pings, 104.0, 3.0) == [40.0, 50.0]


@pytest.mark.parametrize("fails", [False, True])
def test_pings_accompany_a_run_of_iperf_and_end_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool
) -> None:
    ping, started = tmp_path / "ping", tmp_path / "started"
    ping.write_text(
        '#!/bin/sh\necho "[101.0] 64 bytes from 10.77.1.13: icmp_seq=1 ttl=64 time=7.5 ms"\n'
        f'echo "$$ $*" > {started}.draft; mv {started}.draft {started}; exec sleep 60\n'
    )
    ping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(probe, "time", SimpleNamespace(time=lambda: 103.0))

    def iperf(address: str, protocol: str, seconds: float) -> dict[str, float]:
        deadline = time.monotonic() + 20
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if fails:
            raise HostError("no route")
        return {"mbit": 1.0}

    monkeypatch.setattr(probe, "iperf", iperf)
    if fails:
        with pytest.raises(HostError):
            probe.measure("10.77.1.13", "tcp", 3.0)
    else:
        assert probe.measure("10.77.1.13", "tcp", 3.0) == {"mbit": 1.0, "rtt_ms": [7.5]}
    pid, *arguments = started.read_text().split()
    assert arguments == ["-n", "-D", "-i", "0.1", "10.77.1.13"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_iperf_over_tcp_and_udp() -> None:
    received = {"bits_per_second": 9.41e8, "seconds": 3.0}
    tcp = {"end": {"sum_sent": {"retransmits": 4}, "sum_received": received}}
    assert probe.parse_iperf(tcp) == {"mbit": 941.0, "seconds": 3.0, "retransmits": 4}
    udp = {"end": {"sum_sent": {}, "sum_received": {**received, "lost_percent": 2.5, "packets": 100}}}
    assert probe.parse_iperf(udp) == {"mbit": 941.0, "seconds": 3.0, "lost_pct": 2.5, "frames": 100}


@pytest.mark.parametrize("document", [{"error": "unable to connect to server"}, {"start": {}}])
def test_failed_iperf_is_an_error(document: dict[str, str]) -> None:
    with pytest.raises(HostError):
        probe.parse_iperf(document)


def test_failed_probe_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(address: str, protocol: str, seconds: float) -> dict[str, float]:
        if protocol == "udp":
            raise HostError("lost")
        return {"mbit": 1.0}

    monkeypatch.setattr(probe, "measure", measure)
    monkeypatch.setattr(probe, "host", lambda: {"name": "scheduler", "hosts": {"worker-1": "10.77.1.13"}})
    answer = probe.throughput(["worker-1"], runs=2, seconds=1, udp=True)
    assert [entry["mbit"] for entry in answer["throughput"]] == [1.0, 1.0]
    assert [entry["error"] for entry in answer["errors"]] == ["lost", "lost"]
    assert json.dumps(answer)


def test_name_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(probe, "host", lambda: {"name": "h1", "hosts": {"worker-1": "10.77.1.13"}})
    monkeypatch.setattr(probe.socket, "getaddrinfo", unknown)
    settings = probe.host()
    assert probe.address_of("worker-1", settings, {"worker-1": "192.0.2.1"}) == "10.77.1.13"
    assert probe.address_of("h2", settings, {"h2": "192.0.2.2"}) == "192.0.2.2"
    for measure in (
        lambda: probe.rtt(["h2"], 1, 1, {"h2": ""}),
        lambda: probe.throughput(["h2"], 1, 1, addresses={"h3": "192.0.2.3"}),
    ):
        with pytest.raises(HostError, match="h2 cannot be resolved; give its address, or set ansible_host"):
            measure()
