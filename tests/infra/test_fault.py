"""Role fault: kills a service or cuts a link, and repairs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.infra.conftest import GUEST
from tests.waiting import until

testinfra_hosts = ["ansible://lab"]
SERVICE = "dasklab-check"
EFFECT = "/run/dasklab/fault-effect.json"


def inject(host: Any, **fault: object) -> None:
    """Inject a fault now, as ``tasks_from: inject`` does."""
    host.check_output(f"{GUEST} fault arm %s", json.dumps({"at_s": 0, "service": "", "ttl_s": 60, **fault}))
    host.check_output("touch /run/dasklab/fault-started")


@pytest.fixture
def victim(host: Any) -> Iterator[Any]:
    """A service that may be killed."""
    host.check_output(f"systemd-run --unit={SERVICE} sleep 120")
    yield host.service(SERVICE)
    host.run(f"systemctl stop {SERVICE}; systemctl reset-failed {SERVICE}")


def test_installation_alone_injects_no_fault(host: Any, described: dict[str, Any]) -> None:
    assert host.package("iproute2").is_installed
    assert host.check_output("systemctl list-units --all --no-legend 'dasklab-fault*'") == ""
    [link] = host.interface(described["lab"]["name"]).link
    assert "UP" in link["flags"]


def test_service_is_killed(host: Any, victim: Any) -> None:
    assert victim.is_running
    inject(host, does="kill", service=SERVICE)
    until(lambda: host.file(EFFECT).exists, "the fault")
    assert not victim.is_running
    effect = json.loads(host.check_output(f"{GUEST} fault end"))
    assert effect["state"] in ("inactive", "failed")


def test_link_is_cut_and_repaired(host: Any, described: dict[str, Any]) -> None:
    inject(host, does="cut", for_s=0.5)
    file = host.file(EFFECT)
    until(lambda: file.exists and json.loads(file.content)["lasted_s"], "the end of the cut")
    [link] = host.interface(described["lab"]["name"]).link
    assert "UP" in link["flags"]
    effect = json.loads(host.check_output(f"{GUEST} fault end"))
    assert effect["state"] == "down"
    assert effect["lasted_s"] >= 0.5
