"""Who a machine is by its place in the inventory."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.addressing import ignored_models, machine, machines

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


def test_a_machine_is_made_of_its_place() -> None:
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


def test_one_that_captures_has_a_card_more_on_the_labs_bridge() -> None:
    assert machine({**HOST, "lab_captures": True}, 0, "pve")["nics"][2] == {
        "model": "virtio",
        "mac": "02:DA:5C:23:8D:02",
        "bridge": "vmbr1",
    }


def test_a_host_may_have_a_vmid_a_node_and_an_address_of_its_own() -> None:
    own = {"vm_id": 500, "vm_node": "pve2", "management_address": "192.168.1.200"}
    made = machine({**HOST, **own}, 0, "pve")
    assert (made["vmid"], made["node"], made["nics"][0]["address"]) == (500, "pve2", "192.168.1.200/24")
    assert made["nics"][0]["mac"] == "02:DA:5C:01:F4:00"


def test_many_have_their_order() -> None:
    names = [f"worker-{n}" for n in range(1, 300)]
    known = {name: {**HOST, "inventory_hostname": name} for name in names}
    made = machines(names[:244][::-1][:243], known, "pve")
    assert [one["vmid"] for one in made] == list(range(9101, 9101 + 243))
    assert made[0]["name"] == "worker-244"


def test_more_machines_than_addresses_are_said() -> None:
    assert machine(HOST, 243, "pve")["nics"][0]["address"] == "192.168.1.254/24"
    with pytest.raises(
        LabError, match=r"worker-1 is machine 245, but 192.168.1.0/24 has addresses for only 244"
    ):
        machine(HOST, 244, "pve")


def test_a_variable_that_is_missing_is_named() -> None:
    lacking = {name: value for name, value in HOST.items() if name != "vm_cores"}
    with pytest.raises(LabError, match="inventory: worker-1 has no variable 'vm_cores'"):
        machine(lacking, 0, "pve")


def test_a_nic_model_that_a_container_cannot_have_is_reported() -> None:
    hosts = {
        "one": {"lab_guests": "container", "lab_nic_model": "e1000"},
        "two": {"lab_guests": "container", "lab_nic_model": "virtio"},  # the default of all
        "three": {"lab_guests": "vm", "lab_nic_model": "e1000"},
        "four": {"lab_guests": "container", "lab_nic_model": "e1000"},
    }
    assert ignored_models(list(hosts), hosts) == {"e1000": ["one", "four"]}
