"""Role probe: round-trip time and throughput between hosts."""

from __future__ import annotations

from typing import Any

import pytest

testinfra_hosts = ["ansible://lab"]


@pytest.mark.parametrize("package", ["iperf3", "iproute2", "iputils-ping"])
def test_package_is_installed(host: Any, package: str) -> None:
    assert host.package(package).is_installed


def test_no_server_runs_at_rest(host: Any) -> None:
    assert host.process.filter(comm="iperf3") == []


def test_other_hosts_answer_on_the_link_under_test(host: Any, requested: dict[str, Any]) -> None:
    host.check_output("ping -c 1 -W 5 %s", requested["scheduler_address"])
