"""The plan for containers: what is seen, what is wanted, which calls follow."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.observed import Observed
from dasklab.machines.plan import plan, plan_removal
from dasklab.machines.topology import Lab
from dasklab.model.nic import NicOverride

from tests.unit.dasklab.machines.test_plan import CLEAN, calls, converge, holding
from tests.unit.dasklab.samples import LAB, vm

STORAGES = {"local": frozenset({"images", "import", "rootdir", "vztmpl"})}


def container(name: str, vmid: int) -> dict[str, Any]:
    made = vm(name, vmid)
    return {**made, "kind": "container", "nics": [{**nic, "model": "veth"} for nic in made["nics"]]}


def lab_of(*guests: dict[str, Any], **changes: Any) -> Lab:
    image = {"file": "/cache/dasklab-1.tar.zst"}
    given = {**LAB.model_dump(mode="json"), "container_image": image, "guests": guests, **changes}
    return Lab.model_validate(given)


CONTAINERS = lab_of(container("client", 9101), container("worker-1", 9103))
MIXED = lab_of(container("client", 9101), vm("worker-1", 9103))
NOTHING = holding(CLEAN, storages=STORAGES)
BUILT = converge(NOTHING, CONTAINERS)


def test_containers_are_made_of_an_archive_without_a_template() -> None:
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
    made = next(change for change in changes if "vmid" in change.params)
    assert made.params["ostemplate"] == "local:vztmpl/dasklab.dasklab-1.tar.zst"
    assert made.params["net1"] == (
        "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:23:8D:01,type=veth,firewall=0,ip=10.77.1.11/24"
    )
    assert "tags" not in made.params  # a token with the rights of a pool could not make it


def test_what_is_built_needs_nothing() -> None:
    assert plan(BUILT, CONTAINERS) == []
    assert plan(converge(NOTHING, MIXED), MIXED) == []


def test_a_mixed_lab_has_both_images_and_one_template() -> None:
    made = calls(plan(NOTHING, MIXED))
    assert made.count("UPLOAD /nodes/pve/storage/local/upload") == 2
    assert [call for call in made if call.endswith(("/clone", "/lxc", "/template"))] == [
        "POST /nodes/pve/qemu/9100/template",
        "POST /nodes/pve/lxc",
        "POST /nodes/pve/qemu/9100/clone",
    ]


def test_a_trial_s_other_kind_is_the_lab_as_the_inventory_could_have_it() -> None:
    assert CONTAINERS.with_kinds({"worker-1": "vm"}).guests[1].nics[1].model == "virtio"
    assert MIXED.with_kinds({"worker-1": "container"}) == CONTAINERS
    with pytest.raises(LabError, match="guests: no machine 'worker-9' in the inventory"):
        MIXED.with_kinds({"worker-9": "vm"})


@pytest.mark.parametrize(("first", "second"), [(CONTAINERS, MIXED), (MIXED, CONTAINERS)])
def test_another_kind_takes_the_place_and_the_template_stays(first: Lab, second: Lab) -> None:
    seen = converge(NOTHING, first)
    after = converge(seen, second)
    assert plan(after, second) == []
    kinds = {vmid: guest.kind for vmid, guest in after.guests.items()}
    assert {9101: "container", 9103: second.guests[1].kind}.items() <= kinds.items()
    assert 9100 in after.guests


def test_a_rate_and_a_size_change_live() -> None:
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
def test_one_made_of_something_else_is_made_anew(changes: dict[str, Any]) -> None:
    """Image, key and mapping of users are unpacked into it: no call changes them."""
    anew = lab_of(container("client", 9101), container("worker-1", 9103), **changes)
    assert "DELETE /nodes/pve/lxc/9101" in calls(plan(BUILT, anew))
    assert plan(converge(BUILT, anew), anew) == []


def test_removal_takes_containers_and_both_images() -> None:
    seen = converge(NOTHING, MIXED)
    assert calls(plan_removal(seen, MIXED))[-2:] == [
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab.dasklab-1.qcow2",
        "DELETE /nodes/pve/storage/local/content/local:vztmpl/dasklab.dasklab-1.tar.zst",
    ]
    assert "DELETE /nodes/pve/lxc/9101" in calls(plan_removal(seen, MIXED))


def test_what_is_missing_for_containers_is_said() -> None:
    lacking: Observed = holding(NOTHING, storages={"local": frozenset({"images", "import", "vztmpl"})})
    with pytest.raises(LabError, match="storage 'local' does not allow 'rootdir' content"):
        plan(lacking, CONTAINERS)
    with pytest.raises(LabError, match="but no proxmox_container_image"):
        plan(NOTHING, lab_of(container("client", 9101), container_image=None))
