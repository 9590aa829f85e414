"""Role base: the guest program, and the identity of a host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dasklab.paths import SHARE as ROOT

from tests.infra.conftest import GUEST

testinfra_hosts = ["ansible://lab"]
PROGRAM = ROOT / "roles" / "base" / "files" / "dasklab_guest"


def test_command_is_installed(host: Any) -> None:
    command = host.file(GUEST)
    assert (command.user, command.group, command.mode) == ("root", "root", 0o755)


@pytest.mark.parametrize("module", sorted(path.name for path in PROGRAM.glob("*.py")))
def test_guest_program_is_the_controller_s(host: Any, module: str) -> None:
    assert host.file(f"/opt/dasklab/lib/dasklab_guest/{module}").content == (PROGRAM / module).read_bytes()


def test_identity_is_written(host: Any, requested: dict[str, Any]) -> None:
    identity = json.loads(host.file("/etc/dasklab/host.json").content_string)
    assert identity["name"] == requested["inventory_hostname"]
    assert identity["hosts"][identity["name"]] == requested["lab_address"]


def test_link_under_test_is_not_the_one_that_ansible_uses(
    host: Any, requested: dict[str, Any], described: dict[str, Any]
) -> None:
    link = host.interface(described["lab"]["name"])
    assert link.exists
    assert requested["lab_address"] in link.addresses
    assert requested["ansible_host"] not in link.addresses


def test_ansible_reaches_the_host(host: Any) -> None:
    assert host.ansible("ansible.builtin.ping")["ping"] == "pong"
