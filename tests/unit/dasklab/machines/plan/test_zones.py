"""Labs on several nodes: vnet, templates and images on each node, foreign objects, removal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change
from dasklab.machines.endpoint.observed import (
    Observed,
    ObservedBridge,
    ObservedGuest,
    ObservedNode,
    ObservedSdn,
)
from dasklab.machines.inventory.topology import Lab, zone_of
from dasklab.machines.plan import zones
from dasklab.machines.plan.lab_plan import plan, plan_removal

from tests.unit.dasklab.machines.plan.test_lab_plan import calls, converge
from tests.unit.dasklab.samples import LAB, vm

STORAGES = {"local": frozenset({"images", "import", "rootdir", "vztmpl"})}
NODES = ("pve", "pve2")
SPREAD = LAB.model_validate(
    LAB.model_dump(exclude_defaults=True)
    | {"guests": [vm("client", 9101), vm("worker-1", 9103) | {"node": "pve2"}], "bridges": ["labnet"]}
)
MARK = "bridge of lab dasklab"


def node(number: int, **more: Any) -> ObservedNode:
    fields = {"bridges": {"vmbr0": ObservedBridge("")}, "storages": STORAGES, "address": f"10.0.0.{number}"}
    return ObservedNode(**(fields | more))


CLEAN = Observed(version=(9, 2), guests={}, nodes={"pve": node(1), "pve2": node(2)})


def after(changes: list[Change], observed: Observed) -> Observed:
    """Return what a cluster has after these calls, configured and (after an apply) running."""
    areas = {"zones": dict(observed.sdn.zones), "vnets": dict(observed.sdn.vnets)}
    waiting, up = set(observed.sdn.waiting), set(observed.nodes["pve"].zones)
    for change in changes:
        area, _, name = change.path.removeprefix("/cluster/sdn").strip("/").partition("/")
        if change.path == "/cluster/sdn":
            waiting, up = set(), set(areas["zones"])
            continue
        if change.method == "DELETE":
            del areas[area][name]
        else:
            params = {key: value for key, value in change.params.items() if key != area.removesuffix("s")}
            key = name or str(change.params[area.removesuffix("s")])
            areas[area][key] = areas[area].get(key, {}) | params
        waiting.add(zone_of("dasklab"))
    nodes = {name: replace(node_, zones=frozenset(up)) for name, node_ in observed.nodes.items()}
    return replace(observed, nodes=nodes, sdn=ObservedSdn(areas["zones"], areas["vnets"], frozenset(waiting)))


CREATION = list(zones.make(CLEAN, SPREAD))
UP = after(CREATION, CLEAN)


def test_bridge_of_several_nodes_is_a_vnet() -> None:
    zone, vnet, apply = CREATION
    assert zone.params == {
        "zone": "dasklab",
        "type": "vxlan",
        "peers": "10.0.0.1,10.0.0.2",
        "nodes": "pve,pve2",
        "mtu": 1450,
    }
    assert (vnet.params["vnet"], vnet.params["zone"], vnet.params["alias"]) == ("labnet", "dasklab", MARK)
    assert (apply.method, apply.path) == ("PUT", "/cluster/sdn")
    assert [wait.path for wait in apply.until] == ["nodes/pve/sdn/zones", "nodes/pve2/sdn/zones"]


def test_zone_is_created_once_and_removed_completely() -> None:
    assert list(zones.make(UP, SPREAD)) == []
    removal = list(zones.remove(UP, SPREAD))
    assert [f"{c.method} {c.path}" for c in removal] == [
        "DELETE /cluster/sdn/vnets/labnet",
        "DELETE /cluster/sdn/zones/dasklab",
        "PUT /cluster/sdn",
    ]
    assert list(zones.remove(after(removal, UP), SPREAD)) == []


@pytest.mark.parametrize("count", range(len(CREATION)))
def test_interrupted_creation_is_completed_or_undone(count: int) -> None:
    half = after(CREATION[:count], CLEAN)
    assert list(zones.make(after(list(zones.make(half, SPREAD)), half), SPREAD)) == []
    left = after(list(zones.remove(half, SPREAD)), half)
    assert (left.sdn.zones, left.sdn.vnets, left.sdn.waiting) == ({}, {}, frozenset())


@pytest.mark.parametrize("count", range(3))
def test_interrupted_removal_is_completed(count: int) -> None:
    half = after(list(zones.remove(UP, SPREAD))[:count], UP)
    left = after(list(zones.remove(half, SPREAD)), half)
    assert (left.sdn.zones, left.sdn.vnets, left.sdn.waiting) == ({}, {}, frozenset())


def test_another_node_joins_the_zone() -> None:
    grown = SPREAD.model_copy(
        update={"guests": (*SPREAD.guests, SPREAD.guests[0].model_copy(update={"node": "pve3"}))}
    )
    observed = replace(UP, nodes={**UP.nodes, "pve3": node(3)})
    change, apply = zones.make(observed, grown)
    assert (change.method, change.path) == ("PUT", "/cluster/sdn/zones/dasklab")
    assert change.params == {"peers": "10.0.0.1,10.0.0.2,10.0.0.3", "nodes": "pve,pve2,pve3"}
    assert apply.path == "/cluster/sdn"


def test_node_that_was_down_gets_another_apply() -> None:
    lagging = replace(UP, nodes={**UP.nodes, "pve2": replace(UP.nodes["pve2"], zones=frozenset())})
    assert [c.path for c in zones.make(lagging, SPREAD)] == ["/cluster/sdn"]


ZONE = dict(UP.sdn.zones["dasklab"])
OFFICE = {"zone": "dasklab", "tag": 5, "alias": "office"}
FOREIGN = [
    (ObservedSdn({"dasklab": ZONE}, {"office": OFFICE}), "there is a zone 'dasklab' that is not"),
    (ObservedSdn({"dasklab": {"type": "simple"}}, {}), "there is a zone 'dasklab' that is not"),
    (ObservedSdn({"other": ZONE}, {"labnet": OFFICE | {"zone": "other"}}), "there is a vnet 'labnet' that"),
]


@pytest.mark.parametrize(("sdn", "message"), FOREIGN)
def test_foreign_zone_or_vnet_is_refused_and_never_removed(sdn: ObservedSdn, message: str) -> None:
    observed = replace(CLEAN, sdn=sdn)
    with pytest.raises(LabError, match=message):
        list(zones.make(observed, SPREAD))
    assert list(zones.remove(observed, SPREAD)) == []


def test_own_vnet_is_removed_from_a_zone_with_a_foreign_vnet() -> None:
    observed = replace(UP, sdn=replace(UP.sdn, vnets={**UP.sdn.vnets, "office": OFFICE}))
    assert [c.path for c in zones.remove(observed, SPREAD)] == ["/cluster/sdn/vnets/labnet", "/cluster/sdn"]


def test_pending_changes_of_others_are_refused() -> None:
    waiting = replace(CLEAN, sdn=ObservedSdn(waiting=frozenset({"office"})))
    with pytest.raises(LabError, match=r"that are not applied yet \(zone office\)"):
        list(zones.make(waiting, SPREAD))
    pending = {"pve": CLEAN.nodes["pve"], "pve9": node(9, pending={"vmbr4": ("+auto vmbr4",)})}
    with pytest.raises(LabError, match=r"that are not applied yet \(vmbr4 on node pve9\)"):
        list(zones.make(replace(CLEAN, nodes={**CLEAN.nodes, **pending}), SPREAD))


def test_existing_bridge_and_invalid_vnet_name_are_refused() -> None:
    bridges = {"labnet": ObservedBridge(MARK)}
    observed = replace(CLEAN, nodes={**CLEAN.nodes, "pve2": node(2, bridges=bridges)})
    with pytest.raises(LabError, match="node pve2 has a bridge 'labnet'") as refused:
        list(zones.make(observed, SPREAD))
    assert "dasklab destroy" in str(refused.value.hint)
    with pytest.raises(LabError, match="'lab-bridge' cannot be a vnet; allowed: two to eight letters"):
        list(zones.make(CLEAN, SPREAD.model_copy(update={"bridges": ("lab-bridge",)})))


def test_node_without_an_address_is_refused() -> None:
    observed = replace(CLEAN, nodes={**CLEAN.nodes, "pve2": node(2, address="")})
    with pytest.raises(LabError, match="node pve2 has no address"):
        list(zones.make(observed, SPREAD))


def test_each_node_gets_image_and_template() -> None:
    planned = calls(plan(CLEAN, SPREAD))
    assert planned[3:11] == [
        "UPLOAD /nodes/pve/storage/local/upload",
        "UPLOAD /nodes/pve2/storage/local/upload",
        "POST /nodes/pve/qemu",
        "PUT /nodes/pve/qemu/9100/config",
        "POST /nodes/pve/qemu/9100/template",
        "POST /nodes/pve2/qemu",
        "PUT /nodes/pve2/qemu/9345/config",
        "POST /nodes/pve2/qemu/9345/template",
    ]
    assert planned[-3] == "POST /nodes/pve2/qemu/9345/clone"


def test_image_on_shared_storage_is_uploaded_once() -> None:
    shared = {"shared": frozenset({"local"})}
    observed = replace(CLEAN, nodes={"pve": node(1, **shared), "pve2": node(2, **shared)})
    sent = [call for call in calls(plan(observed, SPREAD)) if "UPLOAD" in call]
    assert sent == ["UPLOAD /nodes/pve/storage/local/upload"]


def _built(lab: Lab) -> Observed:
    """Return the cluster with the lab's vnet up, and with the effect of all other calls."""
    return converge(UP, lab)


def test_existing_lab_needs_no_changes_and_is_removed_from_all_nodes() -> None:
    built = _built(SPREAD)
    assert plan(built, SPREAD) == []
    removed = calls(plan_removal(built, SPREAD))
    assert {"DELETE /nodes/pve/qemu/9100", "DELETE /nodes/pve2/qemu/9345"} <= set(removed)
    name = "content/local:import/dasklab.dasklab-1.qcow2"
    assert removed[-2:] == [
        f"DELETE /nodes/pve/storage/local/{name}",
        f"DELETE /nodes/pve2/storage/local/{name}",
    ]


def test_host_moved_to_another_node_is_created_there() -> None:
    third = replace(_built(SPREAD), nodes={**_built(SPREAD).nodes, "pve3": node(3)})
    guests = (SPREAD.guests[0], SPREAD.guests[1].model_copy(update={"node": "pve"}))
    moved = calls(plan(replace(third, sdn=ObservedSdn()), SPREAD.model_copy(update={"guests": guests})))
    assert "DELETE /nodes/pve2/qemu/9103" in moved and "POST /nodes/pve/qemu/9100/clone" in moved
    assert not [call for call in moved if "/9101" in call]


def test_lab_back_on_one_node_must_be_destroyed_first() -> None:
    one = SPREAD.model_copy(update={"guests": (SPREAD.guests[0],)})
    with pytest.raises(LabError, match="was on several nodes") as refused:
        plan(_built(SPREAD), one)
    assert "dasklab destroy" in str(refused.value.hint)


def test_foreign_guest_on_a_second_templates_vmid_is_refused() -> None:
    foreign = ObservedGuest(9345, "pve2", "mailserver", "running", frozenset({"prod"}), {})
    with pytest.raises(LabError, match="VMID 9345 is needed for the template of node pve2, but belongs to"):
        plan(replace(CLEAN, guests={9345: foreign}), SPREAD)


@pytest.mark.parametrize("lab", ["dasklab", "my-lab-of-many-nodes", "1st", "x"])
def test_zone_name_is_valid(lab: str) -> None:
    name = zone_of(lab)
    assert name.isalnum() and name[0].isalpha() and 2 <= len(name) <= 8
    assert 1 <= zones.vxlan_id(lab) < 2**24
    assert (name == lab) == (lab == "dasklab")
