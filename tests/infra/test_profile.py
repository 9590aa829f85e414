"""Role profile: profiles of running Python services, by py-spy, which a trial that profiles installs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://lab"]
SERVICE = "dasklab-check-busy"


@pytest.fixture
def busy(host: Any) -> Iterator[str]:
    """A Python service that always computes."""
    host.check_output(f"systemd-run --unit={SERVICE} python3 -c 'while True: sum(range(1000))'")
    yield f"{SERVICE}.service"
    host.run(f"systemctl stop {SERVICE}; systemctl reset-failed {SERVICE}")


@pytest.fixture
def py_spy(host: Any) -> str:
    """The path of py-spy, which the role or a trial installed."""
    paths = host.run("ls /opt/dasklab/profile/bin/py-spy /opt/dask*/bin/py-spy 2>/dev/null").stdout.split()
    if not paths:
        pytest.skip("py-spy is not installed; a trial that profiles brings it")
    return str(paths[0])


def test_nothing_is_sampled_by_the_installation_alone(host: Any) -> None:
    assert host.process.filter(comm="py-spy") == []


def test_service_is_sampled_100_times_a_second(host: Any, py_spy: str, busy: str) -> None:
    request = {"service": busy, "program": py_spy, "processes": 1, "ttl_s": 60}
    host.check_output(f"{GUEST} profile start %s", json.dumps(request))
    [sampler] = host.process.filter(comm="py-spy")
    assert "--rate=100" in sampler.args
    host.check_output("sleep 2")
    profiled = json.loads(host.check_output(f"{GUEST} profile stop"))
    assert profiled["files"], profiled["messages"]
    assert host.process.filter(comm="py-spy") == []
    profile = json.loads(host.file(f"/var/lib/dasklab/trial/{profiled['files'][0]}").content)
    assert sum(len(thread["samples"]) for thread in profile["profiles"]) > 10
