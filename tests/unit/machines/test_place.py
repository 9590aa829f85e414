"""Who a machine is by its place in the inventory."""

from __future__ import annotations

from typing import Any

import pytest

from lab.errors import LabError
from lab.machines.place import machine

LAB = ["client", "scheduler", *(f"worker-{n}" for n in range(1, 300))]
MANAGEMENT: dict[str, Any] = {"bridge": "vmbr0", "subnet": "192.168.1", "gateway": "192.168.1.1"}
LINK: dict[str, Any] = {"bridge": "vmbr1", "subnet": "10.77.1", "model": "e1000", "rate_mbit": 100}


def made(name: str, **changes: Any) -> dict[str, Any]:
    asked = {"first_vmid": 9100, "management": MANAGEMENT, "link": LINK, "captures": False, "node": "pve"}
    return machine(name, LAB, **{**asked, "cores": 1, "memory_mb": 64, **changes})


def test_a_machine_is_made_of_its_place() -> None:
    assert made("worker-1") == {
        "name": "worker-1",
        "vmid": 9103,
        "node": "pve",
        "cores": 1,
        "memory_mb": 64,
        "nics": [
            {
                "model": "virtio",
                "mac": "02:DA:5C:23:8F:00",
                "bridge": "vmbr0",
                "address": "192.168.1.13/24",
                "gateway": "192.168.1.1",
            },
            {
                "mac": "02:DA:5C:23:8F:01",
                "bridge": "vmbr1",
                "model": "e1000",
                "rate_mbit": 100,
                "address": "10.77.1.13/24",
            },
        ],
    }


def test_one_that_captures_has_a_card_more_on_the_labs_bridge() -> None:
    assert made("client", captures=True)["nics"][2] == {
        "model": "virtio",
        "mac": "02:DA:5C:23:8D:02",
        "bridge": "vmbr1",
    }


def test_a_host_may_have_a_vmid_and_an_address_of_its_own() -> None:
    own = made("client", vmid=500, management={**MANAGEMENT, "address": "192.168.1.200"})
    assert (own["vmid"], own["nics"][0]["address"]) == (500, "192.168.1.200/24")
    assert own["nics"][0]["mac"] == "02:DA:5C:01:F4:00"


def test_more_machines_than_addresses_are_said() -> None:
    assert made("worker-242")["nics"][0]["address"] == "192.168.1.254/24"
    with pytest.raises(LabError, match=r"worker-243 is machine 245: 192.168.1.0/24 has addresses for 244"):
        made("worker-243")
