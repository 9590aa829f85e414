"""Plans for containers, and for labs with both kinds of guest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.lab_note import LabNote, with_note
from dasklab.machines.endpoint.observed import Observed
from dasklab.machines.inventory.topology import Lab
from dasklab.machines.plan.lab_plan import plan, plan_removal
from dasklab.model.settings.nic import NicOverride

from tests.unit.dasklab.machines.plan.test_lab_plan import CLEAN, calls, converge, holding
from tests.unit.dasklab.samples import LAB, vm

STORAGES = {"local": frozenset({"images", "import", "rootdir", "vztmpl"})}


def container(name: str, vmid: int) -> dict[str, Any]:
    machine = vm(name, vmid)
    return {**machine, "kind": "container", "nics": [{**nic, "model": "veth"} for nic in machine["nics"]]}


def lab_of(*guests: dict[str, Any], **changes: Any) -> Lab:
    image = {"file": "/cache/dasklab-1.tar.zst"}
    fields = {**LAB.model_dump(mode="json"), "container_image": image, "guests": guests, **changes}
    return Lab.model_validate(fields)


CONTAINERS = lab_of(container("client", 9101), container("worker-1", 9103))
MIXED = lab_of(container("client", 9101), vm("worker-1", 9103))
NOTHING = holding(CLEAN, storages=STORAGES)
BUILT = converge(NOTHING, CONTAINERS)


def test_containers_are_unpacked_from_an_archive_without_a_template() -> None:
    assert calls(plan(NOTHING, CONTAINERS)) == [
        "POST /nodes/pve/network",
        "PUT /nodes/pve/network",
        "UPLOAD /nodes/pve/storage/local/upload",
        "POST /nodes/pve/lxc",
        "PUT /nodes/pve/lxc/9101/config",
        "POST /nodes/pve/lxc/9101/status/start",
        "POST /nodes/pve/lxc",
        "PUT /nodes/pve/lxc/9103/config",
        "POST /nodes/pve/lxc/9103/status/start",
    ]
    changes = [change for step in plan(NOTHING, CONTAINERS) for chain in step.chains for change in chain]
    creation = next(change for change in changes if "vmid" in change.params)
    assert creation.params["ostemplate"] == "local:vztmpl/dasklab.dasklab-1.tar.zst"
    assert creation.params["net1"] == (
        "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:23:8D:01,type=veth,firewall=0,ip=10.77.1.11/24"
    )
    assert "tags" not in creation.params  # a token whose rights come from the pool could not set them


def test_plan_for_an_existing_lab_is_empty() -> None:
    assert plan(BUILT, CONTAINERS) == []
    assert plan(converge(NOTHING, MIXED), MIXED) == []


def test_a_mixed_lab_has_both_images_and_one_template() -> None:
    planned = calls(plan(NOTHING, MIXED))
    assert planned.count("UPLOAD /nodes/pve/storage/local/upload") == 2
    assert [call for call in planned if call.endswith(("/clone", "/lxc", "/template"))] == [
        "POST /nodes/pve/qemu/9100/template",
        "POST /nodes/pve/lxc",
        "POST /nodes/pve/qemu/9100/clone",
    ]


def test_lab_with_other_kinds_equals_an_inventory_with_them() -> None:
    assert CONTAINERS.with_kinds({"worker-1": "vm"}).guests[1].nics[1].model == "virtio"
    assert MIXED.with_kinds({"worker-1": "container"}) == CONTAINERS
    with pytest.raises(LabError, match="guests: no machine 'worker-9' in the inventory"):
        MIXED.with_kinds({"worker-9": "vm"})


@pytest.mark.parametrize(("first", "second"), [(CONTAINERS, MIXED), (MIXED, CONTAINERS)])
def test_change_of_kind_replaces_the_guest_and_keeps_the_template(first: Lab, second: Lab) -> None:
    before = converge(NOTHING, first)
    after = converge(before, second)
    assert plan(after, second) == []
    kinds = {vmid: guest.kind for vmid, guest in after.guests.items()}
    assert {9101: "container", 9103: second.guests[1].kind}.items() <= kinds.items()
    assert 9100 in after.guests


def test_rate_cap_and_size_change_while_a_container_runs() -> None:
    capped = CONTAINERS.with_nics({"worker-1": NicOverride(rate_mbit=100)})
    assert calls(plan(BUILT, capped)) == ["PUT /nodes/pve/lxc/9103/config"]
    larger = lab_of(container("client", 9101), {**container("worker-1", 9103), "memory_mb": 2048})
    assert calls(plan(BUILT, larger)) == ["PUT /nodes/pve/lxc/9103/config"]


@pytest.mark.parametrize(
    "changes",
    [
        {"container_image": {"file": "/cache/dasklab-2.tar.zst"}},
        {"ssh_public_key": "ssh-ed25519 BBBB other"},
        {"unprivileged": False},
    ],
)
def test_container_from_another_image_is_created_again(changes: dict[str, Any]) -> None:
    """No call changes image, key and user mapping of an existing container."""
    changed = lab_of(container("client", 9101), container("worker-1", 9103), **changes)
    assert "DELETE /nodes/pve/lxc/9101" in calls(plan(BUILT, changed))
    assert plan(converge(BUILT, changed), changed) == []


def test_removal_includes_containers_and_both_images() -> None:
    built = converge(NOTHING, MIXED)
    assert calls(plan_removal(built, MIXED))[-2:] == [
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab.dasklab-1.qcow2",
        "DELETE /nodes/pve/storage/local/content/local:vztmpl/dasklab.dasklab-1.tar.zst",
    ]
    assert "DELETE /nodes/pve/lxc/9101" in calls(plan_removal(built, MIXED))


def test_missing_storage_or_image_for_containers_is_reported() -> None:
    lacking: Observed = holding(NOTHING, storages={"local": frozenset({"images", "import", "vztmpl"})})
    with pytest.raises(LabError, match="storage 'local' does not allow 'rootdir' content"):
        plan(lacking, CONTAINERS)
    with pytest.raises(LabError, match="but no proxmox_container_image"):
        plan(NOTHING, lab_of(container("client", 9101), container_image=None))


def test_note_of_who_uses_the_lab_is_no_difference() -> None:
    built, note = converge(NOTHING, MIXED), LabNote("me@here: dasklab run", 1.0, "0a", "0b")
    noted = {
        vmid: replace(
            guest, config={**(guest.config or {}), "description": with_note(guest.description, note)}
        )
        for vmid, guest in built.guests.items()
    }
    assert plan(replace(built, guests=noted), MIXED) == []
