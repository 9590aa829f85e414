"""Role guest: what a host of the lab needs on top of a stock Debian."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from dasklab.paths import SHARE as ROOT

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://lab"]
DEFAULTS = yaml.safe_load((ROOT / "roles" / "guest" / "defaults" / "main.yml").read_text())


@pytest.mark.parametrize("package", DEFAULTS["guest_packages"])
def test_package_is_installed(host: Any, package: str) -> None:
    assert host.package(package).is_installed


def test_ssh_accepts_keys_only(host: Any, requested: dict[str, Any]) -> None:
    assert host.file("/etc/ssh/sshd_config.d/dasklab.conf").mode == 0o644
    settings = dict(line.split(" ", 1) for line in host.check_output("sshd -T").splitlines())
    passwords = "yes" if requested.get("guest_ssh_passwords") else "no"
    assert settings["passwordauthentication"] == settings["kbdinteractiveauthentication"] == passwords
    assert passwords == "yes" or settings["permitrootlogin"] in (
        "no",
        "without-password",
        "prohibit-password",
    )
    assert host.socket(f"tcp://0.0.0.0:{requested.get('ansible_port', 22)}").is_listening


def test_interfaces_and_kernel_have_the_requested_settings(host: Any, is_container: bool) -> None:
    """A container cannot see some kernel settings of its node."""
    answer = json.loads(host.check_output(f"{GUEST} host apply '{{\"check\": true}}'"))
    assert answer["changes"] == []
    unsupported = answer["unsupported"]
    assert [name for name in unsupported if not (is_container and name.startswith("/proc/sys/"))] == []


def test_link_under_test_has_its_mtu(host: Any, requested: dict[str, Any], described: dict[str, Any]) -> None:
    [link] = host.interface(described["lab"]["name"]).link
    assert link["operstate"] == "UP"
    assert link["mtu"] == (requested.get("guest_lab_mtu") or requested.get("lab_mtu") or link["mtu"])


def test_settings_are_applied_at_each_boot(host: Any) -> None:
    service = host.service("dasklab-host")
    assert service.is_enabled
    assert service.systemd_properties["NeedDaemonReload"] == "no"


def test_clock_agrees_with_the_controller_s(host: Any) -> None:
    start_s = time.time()
    clock_s = float(host.check_output("date +%s.%N"))
    assert start_s - DEFAULTS["guest_clock_tolerance_s"] < clock_s
    assert clock_s < time.time() + DEFAULTS["guest_clock_tolerance_s"]
