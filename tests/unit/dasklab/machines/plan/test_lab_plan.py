"""Plans as tables: what the endpoint has, what the lab requests, which calls follow."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Step, render
from dasklab.machines.endpoint.guest_kinds import BY_PATH
from dasklab.machines.endpoint.observed import Observed, ObservedBridge, ObservedGuest, ObservedNode
from dasklab.machines.inventory.topology import Archive, Guest, Lab
from dasklab.machines.plan import lab_plan
from dasklab.machines.plan.lab_plan import plan, plan_removal, refuse_rest
from dasklab.machines.plan.provision import starting
from dasklab.model.settings.nic import NicOverride

from tests.unit.dasklab.samples import LAB, vm

STORAGES = {"local": frozenset({"images", "import", "iso"})}
EMPTY = ObservedNode(bridges={"vmbr0": ObservedBridge("")}, storages=STORAGES)
CLEAN = Observed(version=(9, 2), guests={}, nodes={"pve": EMPTY})
OURS = ObservedBridge("bridge of lab dasklab")


def calls(steps: list[Step]) -> list[str]:
    return [f"{c.method} {c.path}" for s in steps for chain in s.chains for c in chain]


def fresh(node: str, api: str, params: dict[str, Any]) -> ObservedGuest:
    """Return a guest that was just created. A container's configuration contains neither source nor key."""
    forgotten = ("vmid", "ostemplate", "pool", "ssh-public-keys") if api == "lxc" else ()
    config = {key: str(value) for key, value in params.items() if key not in forgotten}
    name = config.get("name") or config["hostname"]
    return ObservedGuest(params["vmid"], node, name, "stopped", frozenset(), config, kind=BY_PATH[api])


def converge(observed: Observed, lab: Lab) -> Observed:
    """Return what an endpoint has after the plan: the effect of each call, as Proxmox VE documents it."""
    guests = dict(observed.guests)
    images = {name: dict(node.images) for name, node in observed.nodes.items()}
    bridges = {name: dict(node.bridges) for name, node in observed.nodes.items()}
    for change in (c for s in plan(observed, lab) for chain in s.chains for c in chain):
        params: dict[str, Any] = dict(change.params)
        parts = change.path.split("/")
        vmid = int(parts[4]) if len(parts) > 4 and parts[3] in ("qemu", "lxc") else 0
        if change.method == "UPLOAD":
            images[parts[2]][params["filename"]] = params["content"]
        elif parts[3] == "network" and change.method == "POST":
            bridges[parts[2]][params["iface"]] = ObservedBridge(params["comments"])
        elif change.method == "POST" and parts[3:] in (["qemu"], ["lxc"]):
            guests[params["vmid"]] = fresh(parts[2], parts[3], params)
        elif change.path.endswith("/template"):
            guests[vmid] = replace(guests[vmid], config={**(guests[vmid].config or {}), "template": "1"})
        elif change.path.endswith("/clone"):
            source = guests[vmid]
            config = {k: v for k, v in (source.config or {}).items() if k != "template"}
            guests[params["newid"]] = replace(
                source, vmid=params["newid"], name=params["name"], config=config
            )
        elif change.path.endswith("/config"):
            gone = str(params.pop("delete", "")).split(",")
            config = {k: v for k, v in (guests[vmid].config or {}).items() if k not in gone}
            config |= {k: str(v) for k, v in params.items()}
            tags = frozenset(config.get("tags", "").split(";")) - {""}
            guests[vmid] = replace(guests[vmid], config=config, tags=tags)
        elif change.path.endswith(("/start", "/stop")):
            guests[vmid] = replace(
                guests[vmid], status="running" if change.path.endswith("start") else "stopped"
            )
        elif change.method == "DELETE" and parts[3] in ("qemu", "lxc"):
            del guests[vmid]
    nodes = {
        name: replace(node, images=images[name], bridges=bridges[name])
        for name, node in observed.nodes.items()
    }
    return replace(observed, guests=guests, nodes=nodes)


def holding(observed: Observed, **what: Any) -> Observed:
    """Return the same endpoint, with these fields of its only node."""
    return replace(observed, nodes={"pve": replace(observed.nodes["pve"], **what)})


BUILT = converge(CLEAN, LAB)


def test_plan_from_nothing_creates_bridge_image_template_and_machines() -> None:
    assert calls(plan(CLEAN, LAB)) == [
        "POST /nodes/pve/network",
        "PUT /nodes/pve/network",
        "UPLOAD /nodes/pve/storage/local/upload",
        "POST /nodes/pve/qemu",
        "PUT /nodes/pve/qemu/9100/config",
        "POST /nodes/pve/qemu/9100/template",
        "POST /nodes/pve/qemu/9100/clone",
        "PUT /nodes/pve/qemu/9101/config",
        "POST /nodes/pve/qemu/9101/status/start",
        "POST /nodes/pve/qemu/9100/clone",
        "PUT /nodes/pve/qemu/9103/config",
        "POST /nodes/pve/qemu/9103/status/start",
    ]


def test_plan_for_an_existing_lab_is_empty() -> None:
    assert plan(BUILT, LAB) == []
    assert render([]) == ""


def test_machines_are_created_in_parallel() -> None:
    assert [len(s.chains) for s in plan(CLEAN, LAB) if s.name == "machines"] == [2]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (NicOverride(rate_mbit=100), ["PUT /nodes/pve/qemu/9103/config"]),
        (
            NicOverride(model="e1000"),
            [
                "POST /nodes/pve/qemu/9103/status/stop",
                "PUT /nodes/pve/qemu/9103/config",
                "POST /nodes/pve/qemu/9103/status/start",
            ],
        ),
    ],
)
def test_rate_cap_changes_live_and_nic_model_needs_a_stop(override: NicOverride, expected: list[str]) -> None:
    assert calls(plan(BUILT, LAB.with_nics({"worker-1": override}))) == expected


def test_recently_started_machines_are_waited_for() -> None:
    """An interrupted run leaves machines that run as requested and do not answer yet."""
    whole = converge(CLEAN, LAB)
    for uptime_s, names in ((3, ["client", "worker-1"]), (59, ["client", "worker-1"]), (60, ["client"])):
        up = {
            9101: replace(whole.guests[9101], uptime_s=0),
            9103: replace(whole.guests[9103], uptime_s=uptime_s),
        }
        assert starting(replace(whole, guests=up), LAB) == names
        gone = {**up, 9103: replace(up[9103], status="stopped")}
        assert starting(replace(whole, guests=gone), LAB) == ["client"]


def test_stopped_machine_is_only_started() -> None:
    guests = {**BUILT.guests, 9103: replace(BUILT.guests[9103], status="stopped")}
    assert calls(plan(replace(BUILT, guests=guests), LAB)) == ["POST /nodes/pve/qemu/9103/status/start"]


def test_pending_changes_of_a_running_machine_are_applied_by_a_restart() -> None:
    guests = {**BUILT.guests, 9103: replace(BUILT.guests[9103], pending=True)}
    assert calls(plan(replace(BUILT, guests=guests), LAB)) == [
        "POST /nodes/pve/qemu/9103/status/stop",
        "POST /nodes/pve/qemu/9103/status/start",
    ]


def test_machine_that_left_the_inventory_is_removed() -> None:
    smaller = LAB.model_copy(update={"guests": LAB.guests[:1]})
    assert calls(plan(BUILT, smaller)) == [
        "POST /nodes/pve/qemu/9103/status/stop",
        "DELETE /nodes/pve/qemu/9103",
    ]


def test_another_image_rebuilds_template_and_clones() -> None:
    renewed = LAB.model_copy(
        update={"image": LAB.image.model_copy(update={"file": "/cache/dasklab-2.qcow2"})}
    )
    steps = plan(BUILT, renewed)
    assert [s.name for s in steps] == ["removal", "template removal", "image", "template", "machines"]
    assert plan(converge(BUILT, renewed), renewed) == []


@pytest.mark.parametrize("vmid", [9100, 9101, 9103])
def test_foreign_machine_on_a_requested_vmid_is_refused_by_name(vmid: int) -> None:
    foreign = ObservedGuest(vmid, "pve", "mailserver", "running", frozenset({"prod"}), {"name": "mailserver"})
    with pytest.raises(LabError, match=f"VMID {vmid} is needed for .*belongs to 'mailserver' on node pve"):
        plan(replace(CLEAN, guests={vmid: foreign}), LAB)


def test_machine_without_read_access_counts_as_foreign() -> None:
    hidden = ObservedGuest(9101, "pve", "9101", "running", frozenset(), None)
    with pytest.raises(LabError, match="VMID 9101"):
        plan(replace(CLEAN, guests={9101: hidden}), LAB)


@pytest.mark.parametrize(
    ("lock", "line"), [("backup", "qm unlock 9103"), ("create", "qm unlock 9103; qm destroy 9103")]
)
def test_locked_machine_is_reported_with_the_unlock_command(lock: str, line: str) -> None:
    locked = {**(BUILT.guests[9103].config or {}), "lock": lock}
    guests = {**BUILT.guests, 9103: replace(BUILT.guests[9103], config=locked)}
    with pytest.raises(LabError) as caught:
        plan(replace(BUILT, guests=guests), LAB)
    assert f"VM 9103 (worker-1) is locked ({lock})" in caught.value.message
    assert (caught.value.hint or "").endswith(f"as root on node pve: {line}")


def test_unfinished_template_is_created_again() -> None:
    config = {**(BUILT.guests[9100].config or {})}
    del config["template"]
    half = replace(BUILT.guests[9100], config=config, tags=frozenset())
    steps = plan(replace(CLEAN, guests={9100: half}), LAB)
    assert "DELETE /nodes/pve/qemu/9100" in calls(steps)
    assert "POST /nodes/pve/qemu" in calls(steps)


def test_old_proxmox_without_image_import_is_refused() -> None:
    with pytest.raises(LabError, match=r"Proxmox VE 8\.3 cannot import an image through its API"):
        plan(replace(CLEAN, version=(8, 3)), LAB)


def test_removal_includes_only_the_labs_own_objects() -> None:
    foreign = ObservedGuest(200, "pve", "mailserver", "running", frozenset({"prod"}), {})
    images = {**BUILT.nodes["pve"].images, "dasklab-1.qcow2": "import", "dasklab.older.qcow2": "import"}
    bridges = {**BUILT.nodes["pve"].bridges, "vmbr7": ObservedBridge("office")}
    observed = replace(BUILT, guests={**BUILT.guests, 200: foreign})
    observed = holding(observed, bridges=bridges, images=images)
    assert calls(plan_removal(observed, LAB)) == [
        "POST /nodes/pve/qemu/9101/status/stop",
        "DELETE /nodes/pve/qemu/9101",
        "POST /nodes/pve/qemu/9103/status/stop",
        "DELETE /nodes/pve/qemu/9103",
        "DELETE /nodes/pve/qemu/9100",
        "DELETE /nodes/pve/network/vmbr1",
        "PUT /nodes/pve/network",
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab.dasklab-1.qcow2",
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab.older.qcow2",
    ]


def test_removal_keeps_a_bridge_made_by_hand() -> None:
    observed = holding(BUILT, bridges={"vmbr0": ObservedBridge(""), "vmbr1": ObservedBridge("made by hand")})
    assert not [c for c in calls(plan_removal(observed, LAB)) if "network" in c]


def test_printed_plan_hides_the_ssh_key() -> None:
    assert "AAAA" not in render(plan(CLEAN, LAB))


def test_move_to_other_vmids_removes_the_old_template_last() -> None:
    moved = LAB.model_copy(
        update={
            "template_vmid": 9200,
            "guests": tuple(vm.model_copy(update={"vmid": vm.vmid + 100}) for vm in LAB.guests),
        }
    )
    steps = plan(BUILT, moved)
    removals = [s for s in steps if "removal" in s.name]
    assert [s.name for s in removals] == ["removal", "template removal"]
    assert calls(removals)[-1] == "DELETE /nodes/pve/qemu/9100"
    assert plan(converge(BUILT, moved), moved) == []


@pytest.mark.parametrize("shift", [-4, -1, 2, 4])
def test_move_by_some_vmids_makes_each_guest_anew(shift: int) -> None:
    """A guest in the place of another would have its disk, and ssh would find another key at its address."""
    five = tuple(
        Guest.model_validate(vm(f"host-{number}", 9100 + number)).for_kind("container")
        for number in range(1, 6)
    )
    lab = LAB.model_copy(update={"guests": five, "container_image": Archive(file="/cache/a.tar.zst")})
    clean = holding(CLEAN, storages={"local": frozenset({"vztmpl", "rootdir"})})
    moved = lab.model_copy(
        update={
            "template_vmid": 9100 + shift,
            "guests": tuple(guest.model_copy(update={"vmid": guest.vmid + shift}) for guest in five),
        }
    )
    steps = plan(converge(clean, lab), moved)
    made = [call for call in calls(steps) if call == "POST /nodes/pve/lxc"]
    assert len(made) == len([call for call in calls(steps) if call.startswith("DELETE")]) == 5


@pytest.mark.parametrize("shift", [-1, 1])
def test_move_by_one_vmid_puts_a_machine_where_the_template_was(shift: int) -> None:
    guests = tuple(vm.model_copy(update={"vmid": vm.vmid + shift}) for vm in LAB.guests)
    moved = LAB.model_copy(update={"template_vmid": LAB.template_vmid + shift, "guests": guests})
    after = converge(BUILT, moved)
    assert plan(after, moved) == []
    assert [vm.vmid for vm in after.guests.values() if vm.is_template] == [moved.template_vmid]


def test_clone_with_its_templates_description_is_no_template() -> None:
    inherited = {
        **(BUILT.guests[9103].config or {}),
        "description": "lab=dasklab image=dasklab.dasklab-1.qcow2",
    }
    guests = {**BUILT.guests, 9103: replace(BUILT.guests[9103], config=inherited, tags=frozenset())}
    assert calls(plan_removal(replace(BUILT, guests=guests), LAB))[-5:-3] == [
        "DELETE /nodes/pve/qemu/9103",
        "DELETE /nodes/pve/qemu/9100",
    ]


def test_image_is_removed_even_without_machines() -> None:
    left = holding(CLEAN, images=BUILT.nodes["pve"].images)
    assert calls(plan_removal(left, LAB)) == [
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab.dasklab-1.qcow2"
    ]


def test_removal_keeps_foreign_images_of_the_same_name() -> None:
    left = holding(CLEAN, images={"dasklab-1.qcow2": "import", "dasklab-2.dasklab-1.qcow2": "import"})
    assert plan_removal(left, LAB) == []


def test_image_is_removed_last() -> None:
    assert plan_removal(BUILT, LAB)[-1].name == "image"


def test_downloaded_image_gets_the_labs_prefix() -> None:
    url = "https://images.example/debian.qcow2"
    fetching = LAB.model_copy(update={"image": LAB.image.model_copy(update={"file": None, "url": url})})
    fetch = next(c for s in plan(CLEAN, fetching) if s.name == "image" for c in s.chains[0])
    assert (fetch.path, fetch.params["filename"]) == (
        "/nodes/pve/storage/local/download-url",
        "dasklab.debian.qcow2",
    )


def test_vmid_of_an_invisible_machine_is_refused() -> None:
    containers = tuple(vm.for_kind("container") if vm.vmid == 9101 else vm for vm in LAB.guests)
    lab = LAB.model_copy(update={"guests": containers})
    half_made = replace(CLEAN, hidden_vmids=frozenset({9103, 9101}))
    for refuse in (plan, refuse_rest):
        with pytest.raises(LabError) as caught:
            refuse(half_made, lab)
        assert "9101 (client), 9103 (worker-1)" in caught.value.message
        lines = (caught.value.hint or "").splitlines()
        assert "where `pct config 9101` shows `lock: create`" in lines[1]
        assert lines[2:4] == ["  pct unlock 9101; pct destroy 9101", "  qm unlock 9103; qm destroy 9103"]


@pytest.mark.parametrize(
    ("storages", "message", "fix"),
    [
        ({}, "node pve has no storage 'local'; it has none that this token may see", ""),
        (
            {"local": frozenset({"images", "iso"})},
            "storage 'local' does not allow 'import' content",
            "pvesm set local --content images,import,iso",
        ),
    ],
)
def test_unsuitable_storage_is_refused(storages: dict[str, frozenset[str]], message: str, fix: str) -> None:
    with pytest.raises(LabError) as caught:
        plan(holding(CLEAN, storages=storages), LAB)
    assert caught.value.message == message
    assert fix in (caught.value.hint or "")


def test_five_hundred_machines_are_planned_in_a_second() -> None:
    many = LAB.model_copy(
        update={"guests": tuple(Guest(**vm(f"worker-{n}", 9100 + n)) for n in range(1, 501))}
    )
    start_s = time.process_time()
    assert sum(len(s.chains) for s in plan(CLEAN, many)) == 503
    built = converge(CLEAN, many)
    assert plan(built, many) == []
    assert len(calls(plan_removal(built, many))) == 1004
    assert time.process_time() - start_s < 3  # three plans


def test_changed_nic_is_printed_with_its_parts_in_one_order() -> None:
    have = {"net1": "virtio=BC:24:11:00:00:01,bridge=vmbr1,firewall=1,mtu=1500"}
    params = {"net1": "e1000=BC:24:11:00:00:01,mtu=1500,bridge=vmbr1", "cores": 2}
    assert lab_plan._differences(have, params) == (
        "net1 virtio=BC:24:11:00:00:01,mtu=1500,bridge=vmbr1,firewall=1 -> "
        "e1000=BC:24:11:00:00:01,mtu=1500,bridge=vmbr1; cores unset -> 2"
    )
