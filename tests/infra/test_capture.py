"""Role capture: captures of an interface, with a count of what was lost."""

from __future__ import annotations

import json
from typing import Any

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://dask_client"]


def test_tcpdump_is_installed(host: Any) -> None:
    assert host.package("tcpdump").is_installed


def test_nothing_is_captured_at_rest(host: Any, described: dict[str, Any]) -> None:
    assert host.process.filter(comm="tcpdump") == []
    assert host.interface(described["capture"]["name"]).exists
    assert described["capture"]["up"]
    assert described["capture"]["promiscuity"] == 0


def test_interface_is_promiscuous_only_during_a_capture(host: Any) -> None:
    request = json.dumps({"ttl_s": 60, "buffer_mib": 4, "file_max_mb": 10})
    host.check_output(f"{GUEST} capture start %s", request)
    report = json.loads(host.check_output(f"{GUEST} capture stop"))
    assert report["promiscuity"] >= 1
    assert report["frames"] is not None
    assert report["dropped_kernel"] == report["dropped_interface"] == 0
    assert json.loads(host.check_output(f"{GUEST} host counters"))["capture"]["promiscuity"] == 0


def test_frames_of_the_scheduler_are_kept_whole(host: Any, requested: dict[str, Any]) -> None:
    request = json.dumps({"ttl_s": 60, "buffer_mib": 4, "file_max_mb": 10})
    host.check_output(f"{GUEST} capture start %s", request)
    try:
        host.check_output("ping -c 2 -s 1000 -W 5 %s", requested["scheduler_address"])
    finally:
        report = json.loads(host.check_output(f"{GUEST} capture stop"))
    assert report["frames"] >= 2
    frames = host.check_output("tcpdump -n -r /var/lib/dasklab/trial/capture.pcap icmp 2>/dev/null")
    assert "length 1008" in frames
