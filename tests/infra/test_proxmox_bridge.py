"""Role proxmox_bridge: the lab's own bridge on a Proxmox VE node. It runs on the node."""

from __future__ import annotations

import json
from typing import Any

import pytest

testinfra_hosts = ["ansible://hypervisors"]


@pytest.fixture(scope="module")
def bridge(requested: dict[str, Any]) -> str:
    return str(requested.get("proxmox_bridge_name", requested["lab_bridge"]))


def test_bridge_has_its_ageing_time(host: Any, requested: dict[str, Any], bridge: str) -> None:
    [link] = json.loads(host.check_output("ip -d -j link show dev %s", bridge))
    assert link["linkinfo"]["info_kind"] == "bridge"
    mode = requested.get("proxmox_bridge_mode", "flooding")
    assert link["linkinfo"]["info_data"]["ageing_time"] == {"flooding": 0, "learning": 30000}[mode]


def test_bridge_has_no_physical_port(host: Any, bridge: str) -> None:
    ports = json.loads(host.check_output("ip -d -j link show master %s", bridge))
    assert {port.get("linkinfo", {}).get("info_kind") for port in ports} <= {"tun", "veth", "vxlan"}
