"""Role dask: Dask at the same exact versions on every host, as a service."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from dasklab.paths import SHARE as ROOT

from tests.waiting import until

testinfra_hosts = ["ansible://lab"]
PINS = ROOT / "roles" / "dask" / "files" / "requirements.txt"
SERVICES = {"dask-scheduler": "scheduler", "dask-worker": "worker"}


def turn_scheduler(host: Any, state: str) -> None:
    arguments = f"name=dask-scheduler state={state}"
    assert host.ansible("ansible.builtin.systemd_service", arguments, check=False)["changed"]


def test_packages_have_the_pinned_versions(described: dict[str, Any]) -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", PINS.read_text(), re.MULTILINE))
    assert {name: described["versions"].get(name) for name in pins} == pins


def test_settings_are_those_of_the_inventory(host: Any, requested: dict[str, Any]) -> None:
    written = yaml.safe_load(host.file("/etc/dask/dasklab.yaml").content_string)
    assert (written or {}) == requested.get("dask_config", {})


@pytest.mark.parametrize(("service", "role"), SERVICES.items())
def test_service_of_the_host_s_role_is_installed_and_waits_for_a_trial(
    host: Any, requested: dict[str, Any], service: str, role: str
) -> None:
    has_service = requested["dask_role"] == role
    unit = host.service(service)
    assert unit.exists == has_service
    assert not unit.is_running
    assert host.file(f"/etc/systemd/system/{service}.service").exists == has_service
    if has_service:
        properties = unit.systemd_properties
        assert properties["UnitFileState"] == "static"  # nothing starts it at boot
        assert properties["NeedDaemonReload"] == "no"
        assert properties["TimeoutStopUSec"] == "3s"


def test_no_process_of_dask_runs_at_rest(host: Any) -> None:
    assert not [process for process in host.process.filter() if "-m dask " in process.args]


def test_scheduler_starts_listens_and_stops(host: Any, requested: dict[str, Any]) -> None:
    """As with ``dask_state: started``; the other hosts have no scheduler."""
    if requested["dask_role"] != "scheduler":
        assert not host.file("/opt/dasklab/bin/dasklab_scheduler").exists
        return
    port = host.socket(f"tcp://{requested['lab_address']}:{requested.get('dask_port', 8786)}")
    assert not port.is_listening
    try:
        turn_scheduler(host, "started")
        until(lambda: port.is_listening, "the scheduler's port")
    finally:
        turn_scheduler(host, "stopped")
    assert not host.service("dask-scheduler").is_running
