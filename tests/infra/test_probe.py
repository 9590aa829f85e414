"""Role probe: round-trip time and throughput between hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://lab"]


@pytest.fixture
def target(host: Any, requested: dict[str, Any]) -> Iterator[str]:
    """Another host, on which a server of iperf3 runs."""
    names = requested["groups"]["lab"]
    name = names[names.index(requested["inventory_hostname"]) - 1]
    other = host.get_host(f"ansible://{name}", ansible_inventory=host.backend.ansible_inventory)
    other.check_output(f"{GUEST} probe serve %s", json.dumps({"ttl_s": 60}))
    yield name
    other.check_output(f"{GUEST} probe stop")


@pytest.mark.parametrize("package", ["iperf3", "iproute2", "iputils-ping"])
def test_package_is_installed(host: Any, package: str) -> None:
    assert host.package(package).is_installed


def test_no_server_runs_at_rest(host: Any) -> None:
    assert host.process.filter(comm="iperf3") == []


def test_round_trip_times_to_another_host_are_measured(host: Any, target: str) -> None:
    request = json.dumps({"to": [target], "pings": 3, "interval_s": 0.2})
    [measured] = json.loads(host.check_output(f"{GUEST} probe rtt %s", request))["rtt"]
    assert measured["dst"] == target
    assert len(measured["samples_ms"]) == 3


def test_throughput_to_another_host_is_measured(host: Any, target: str) -> None:
    request = json.dumps({"to": [target], "runs": 1, "seconds": 1})
    answer = json.loads(host.check_output(f"{GUEST} probe throughput %s", request))
    assert answer["errors"] == []
    [measured] = answer["throughput"]
    assert (measured["dst"], measured["proto"]) == (target, "tcp")
    assert measured["mbit"] > 1
