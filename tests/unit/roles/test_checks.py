"""The checks of provisioned hosts, without a host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.paths import SHARE as ROOT

from tests.infra.conftest import resolve

CHECKS = ROOT / "tests" / "infra"
CONFIGURE = yaml.safe_load((ROOT / "playbooks" / "configure.yml").read_text())


@pytest.mark.parametrize("role", [role["role"] for play in CONFIGURE for role in play.get("roles", [])])
def test_role_of_the_lab_s_hosts_has_checks(role: str) -> None:
    assert (CHECKS / f"test_{role}.py").exists()


def test_inventory_of_the_checks_has_plain_values_and_one_connection_to_each_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    resolved = resolve(Inventory(ROOT / "inventory" / "examples" / "existing" / "hosts.yml"))["all"]
    worker = resolved["hosts"]["worker-1"]
    assert worker["scheduler_address"] == "198.51.100.12"
    assert f"-o ControlPath={tmp_path}/.ansible/cp/" in worker["ansible_ssh_extra_args"]
    assert list(resolved["children"]["dask_client"]["hosts"]) == ["client"]
    assert "{{" not in str(resolved)
    connections = {host["ansible_ssh_extra_args"] for host in resolved["hosts"].values()}
    assert len(connections) == len(resolved["hosts"])
