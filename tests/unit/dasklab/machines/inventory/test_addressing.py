"""VMIDs, addresses and MACs by position in the inventory."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.inventory.addressing import ignored_models, machine, machines

HOST: dict[str, Any] = {
    "inventory_hostname": "worker-1",
    "lab_first_vmid": "9100",
    "lab_management_bridge": "vmbr0",
    "lab_management_subnet": "192.168.1",
    "lab_management_gateway": "192.168.1.1",
    "lab_bridge": "vmbr1",
    "lab_subnet": "10.77.1",
    "lab_nic_model": "e1000",
    "lab_nic_rate_mbit": 100,
    "vm_cores": 1,
    "vm_memory_mb": 64,
}


def test_machine_follows_from_its_position() -> None:
    assert machine(HOST, 2, "pve") == {
        "name": "worker-1",
        "kind": "vm",
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


def test_capturing_machine_has_a_third_nic_on_the_lab_bridge() -> None:
    assert machine({**HOST, "lab_captures": True}, 0, "pve")["nics"][2] == {
        "model": "virtio",
        "mac": "02:DA:5C:23:8D:02",
        "bridge": "vmbr1",
    }


def test_host_variables_override_vmid_node_and_address() -> None:
    own = {"vm_id": 500, "vm_node": "pve2", "management_address": "192.168.1.200"}
    guest = machine({**HOST, **own}, 0, "pve")
    assert (guest["vmid"], guest["node"], guest["nics"][0]["address"]) == (500, "pve2", "192.168.1.200/24")
    assert guest["nics"][0]["mac"] == "02:DA:5C:01:F4:00"


def test_machines_are_in_inventory_order() -> None:
    names = [f"worker-{n}" for n in range(1, 300)]
    known = {name: {**HOST, "inventory_hostname": name} for name in names}
    guests = machines(names[:244][::-1][:243], known, "pve")
    assert [guest["vmid"] for guest in guests] == list(range(9101, 9101 + 243))
    assert guests[0]["name"] == "worker-244"


def test_too_many_machines_are_refused() -> None:
    assert machine(HOST, 243, "pve")["nics"][0]["address"] == "192.168.1.254/24"
    with pytest.raises(
        LabError, match=r"worker-1 is machine 245, but 192.168.1.0/24 has addresses for only 244"
    ):
        machine(HOST, 244, "pve")


def test_missing_host_variable_is_named() -> None:
    lacking = {name: value for name, value in HOST.items() if name != "vm_cores"}
    with pytest.raises(LabError, match="inventory: worker-1 has no variable 'vm_cores'"):
        machine(lacking, 0, "pve")


def test_nic_model_that_containers_ignore_is_reported() -> None:
    hosts = {
        "one": {"lab_guests": "container", "lab_nic_model": "e1000"},
        "two": {"lab_guests": "container", "lab_nic_model": "virtio"},  # the default of all
        "three": {"lab_guests": "vm", "lab_nic_model": "e1000"},
        "four": {"lab_guests": "container", "lab_nic_model": "e1000"},
    }
    assert ignored_models(list(hosts), hosts) == {"e1000": ["one", "four"]}
