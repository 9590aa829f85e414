"""The plan as a table: what is seen, what is wanted, which calls follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.errors import LabError
from lab.machines.plan import Observed, SeenVm, Step, plan, plan_removal, render
from lab.machines.topology import Lab
from lab.model.nic import NicOverride
from tests.unit.samples import LAB

CLEAN = Observed(version=(9, 2), vms={}, images=frozenset(), bridges={"vmbr0": ""})


def calls(steps: list[Step]) -> list[str]:
    return [f"{c.method} {c.path}" for s in steps for chain in s.chains for c in chain]


def converge(seen: Observed, lab: Lab) -> Observed:
    """What an endpoint would have after the plan: the effect of each call, as PVE documents it."""
    vms, images, bridges = dict(seen.vms), set(seen.images), dict(seen.bridges)
    for change in (c for s in plan(seen, lab) for chain in s.chains for c in chain):
        params: dict[str, Any] = dict(change.params)
        parts = change.path.split("/")
        vmid = int(parts[4]) if len(parts) > 4 and parts[3] == "qemu" else 0
        if change.method == "UPLOAD":
            images.add(params["filename"].rpartition("/")[2])
        elif parts[3] == "network" and change.method == "POST":
            bridges[params["iface"]] = params["comments"]
        elif change.method == "POST" and parts[3:] == ["qemu"]:
            config = {k: str(v) for k, v in params.items()}
            vms[params["vmid"]] = SeenVm(
                params["vmid"], parts[2], config["name"], "stopped", frozenset(), config
            )
        elif change.path.endswith("/template"):
            vms[vmid] = replace(vms[vmid], config={**(vms[vmid].config or {}), "template": "1"})
        elif change.path.endswith("/clone"):
            source = vms[vmid]
            config = {k: v for k, v in (source.config or {}).items() if k != "template"}
            vms[params["newid"]] = replace(source, vmid=params["newid"], name=params["name"], config=config)
        elif change.path.endswith("/config"):
            gone = str(params.pop("delete", "")).split(",")
            config = {k: v for k, v in (vms[vmid].config or {}).items() if k not in gone}
            config |= {k: str(v) for k, v in params.items()}
            tags = frozenset(config.get("tags", "").split(";")) - {""}
            vms[vmid] = replace(vms[vmid], config=config, tags=tags)
        elif change.path.endswith(("/start", "/stop")):
            vms[vmid] = replace(vms[vmid], status="running" if change.path.endswith("start") else "stopped")
        elif change.method == "DELETE" and parts[3] == "qemu":
            del vms[vmid]
    return replace(seen, vms=vms, images=frozenset(images), bridges=bridges)


BUILT = converge(CLEAN, LAB)


def test_from_nothing_the_plan_makes_bridge_image_template_and_machines() -> None:
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


def test_what_is_built_needs_nothing() -> None:
    assert plan(BUILT, LAB) == []
    assert render([]) == ""


def test_machines_are_made_side_by_side() -> None:
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
def test_a_rate_changes_live_and_a_model_by_stop_change_start(
    override: NicOverride, expected: list[str]
) -> None:
    assert calls(plan(BUILT, LAB.with_nics({"worker-1": override}))) == expected


def test_a_machine_that_died_is_started_and_nothing_else() -> None:
    vms = {**BUILT.vms, 9103: replace(BUILT.vms[9103], status="stopped")}
    assert calls(plan(replace(BUILT, vms=vms), LAB)) == ["POST /nodes/pve/qemu/9103/status/start"]


def test_pending_changes_of_a_running_machine_are_applied_by_a_restart() -> None:
    vms = {**BUILT.vms, 9103: replace(BUILT.vms[9103], pending=True)}
    assert calls(plan(replace(BUILT, vms=vms), LAB)) == [
        "POST /nodes/pve/qemu/9103/status/stop",
        "POST /nodes/pve/qemu/9103/status/start",
    ]


def test_a_machine_that_left_the_inventory_is_removed() -> None:
    smaller = LAB.model_copy(update={"vms": LAB.vms[:1]})
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
def test_a_foreign_machine_is_refused_by_name(vmid: int) -> None:
    foreign = SeenVm(vmid, "pve", "mailserver", "running", frozenset({"prod"}), {"name": "mailserver"})
    with pytest.raises(LabError, match=f"VMID {vmid} is wanted for .*belongs to 'mailserver' on node pve"):
        plan(replace(CLEAN, vms={vmid: foreign}), LAB)


def test_a_machine_that_may_not_be_read_counts_as_foreign() -> None:
    hidden = SeenVm(9101, "pve", "9101", "running", frozenset(), None)
    with pytest.raises(LabError, match="VMID 9101"):
        plan(replace(CLEAN, vms={9101: hidden}), LAB)


def test_a_locked_machine_is_said_with_the_line_that_unlocks_it() -> None:
    vms = {**BUILT.vms, 9103: replace(BUILT.vms[9103], lock="backup")}
    with pytest.raises(LabError) as caught:
        plan(replace(BUILT, vms=vms), LAB)
    assert "VM 9103 (worker-1) is locked (backup)" in caught.value.message
    assert "qm unlock 9103" in (caught.value.hint or "")


def test_a_template_left_half_made_is_made_again() -> None:
    config = {**(BUILT.vms[9100].config or {})}
    del config["template"]
    half = replace(BUILT.vms[9100], config=config, tags=frozenset())
    steps = plan(replace(CLEAN, vms={9100: half}), LAB)
    assert "DELETE /nodes/pve/qemu/9100" in calls(steps)
    assert "POST /nodes/pve/qemu" in calls(steps)


def test_others_pending_network_changes_are_not_applied_along() -> None:
    with pytest.raises(LabError, match="network changes that nobody has applied"):
        plan(replace(CLEAN, pending_network="--- a\n+++ b\n"), LAB)


def test_old_proxmox_gets_a_clear_word_about_images() -> None:
    with pytest.raises(LabError, match=r"Proxmox VE 8\.3 takes no image by its API"):
        plan(replace(CLEAN, version=(8, 3)), LAB)


def test_removal_takes_all_that_is_ours_and_nothing_else() -> None:
    foreign = SeenVm(200, "pve", "mailserver", "running", frozenset({"prod"}), {})
    seen = replace(BUILT, vms={**BUILT.vms, 200: foreign}, bridges={**BUILT.bridges, "vmbr7": "office"})
    made = calls(plan_removal(seen, LAB))
    assert made == [
        "POST /nodes/pve/qemu/9101/status/stop",
        "DELETE /nodes/pve/qemu/9101",
        "POST /nodes/pve/qemu/9103/status/stop",
        "DELETE /nodes/pve/qemu/9103",
        "DELETE /nodes/pve/qemu/9100",
        "DELETE /nodes/pve/storage/local/content/local:import/dasklab-1.qcow2",
        "DELETE /nodes/pve/network/vmbr1",
        "PUT /nodes/pve/network",
    ]


def test_a_bridge_that_the_tool_did_not_make_stays() -> None:
    seen = replace(BUILT, bridges={"vmbr0": "", "vmbr1": "made by hand"})
    assert not [c for c in calls(plan_removal(seen, LAB)) if "network" in c]


def test_the_key_is_not_shown_in_a_plan() -> None:
    assert "AAAA" not in render(plan(CLEAN, LAB))
