"""Requests that a node refuses, with its order of checks and its texts: ``tests/data/pve/refusals.json``.

The facts come from pve-container 6.1.10, qemu-server 9.2.6 and pve-manager 9.2.11. The file describes a new
container by its differences from a minimal one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint
from tests.contract.lab import tiny
from tests.contract.recorded import Recorder

REFUSALS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data/pve/refusals.json").read_text()
)
POOL = [
    "VM.Allocate", "VM.Audit", "VM.Clone", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Disk",
    "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
]  # fmt: skip
STORAGE = {"/storage/local": ["Datastore.AllocateSpace", "Datastore.Audit"]}
AUDIT = {"/storage/local": ["Datastore.Audit"]}
RIGHTS = {"pool": {"/pool/lab": POOL} | STORAGE, "no storage": {"/pool/lab": POOL} | AUDIT, "none": {}}
PLAIN = {"vmid": 130, "ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1"}


@pytest.fixture(scope="module")
def node(own_for_all: Endpoint, lxc: None) -> Iterator[Recorder]:
    """Yield the callers, on a node with a pool, a stopped container 120 and a VM 100."""
    recorder = Recorder(own_for_all)
    root = recorder.root
    root.pools.post(poolid="lab")
    parts = {"content": (None, "vztmpl"), "filename": ("tiny.tar.gz", tiny.template())}
    path = "/nodes/pve/storage/local/upload"
    own_for_all.done(own_for_all.request("POST", path, recorder.full, files=parts).json()["data"], root)
    own_for_all.done(root.nodes("pve").lxc.post(**PLAIN | {"vmid": 120, "hostname": "a"}), root)
    own_for_all.done(root.nodes("pve").qemu.post(vmid=100, memory=32, kvm=0), root)
    yield recorder


@pytest.mark.parametrize("case", REFUSALS, ids=[case["id"] for case in REFUSALS])
def test_refusal(node: Recorder, case: dict[str, Any]) -> None:
    who = case["rights"] if case["rights"] == "root-token" else "granted-token"
    if who == "granted-token":
        node.allow(RIGHTS[case["rights"]])
    before = sorted(row["vmid"] for row in node.root.cluster.resources.get(type="vm"))
    sent = {key: case[key] for key in ("data", "params") if key in case}
    if "container" in case:
        asked = PLAIN | case["container"]
        sent = {"data": {key: value for key, value in asked.items() if value is not None}}
    answer = node.endpoint.request(case["method"], case["path"], node.headers(who), **sent)
    assert (answer.status_code, answer.reason) == (case["status"], case["reason"])
    assert answer.json().get("errors") == case.get("errors")
    assert sorted(row["vmid"] for row in node.root.cluster.resources.get(type="vm")) == before


def test_unsupported_options_are_refused_for_root(node: Recorder) -> None:
    """Callers who may use an option on a node get a clear error before anything is created."""
    for options in (
        {"ha-managed": 1}, {"features": "keyctl=1"}, {"mp0": "local:1,mp=/x"}, {"dev0": "/dev/kvm"},
        {"hookscript": "local:snippets/a.sh"},
    ):  # fmt: skip
        answer = _as_root(node, "POST", "/nodes/pve/lxc", PLAIN | options)
        assert (answer["status"], list(answer["errors"])) == (400, list(options))
    for options in ({"ha-managed": 1}, {"usb0": "host=1234:5678"}, {"hostpci0": "00:02.0"}):
        answer = _as_root(node, "POST", "/nodes/pve/qemu", {"vmid": 130} | options)
        assert (answer["status"], list(answer["errors"])) == (400, list(options))


def _as_root(node: Recorder, verb: str, path: str, data: dict[str, Any]) -> dict[str, Any]:
    login = {"username": "root@pam", "password": node.endpoint.root_password}
    ticket = node.endpoint.request("POST", "/access/ticket", {}, data=login).json()["data"]
    headers = {
        "Cookie": f"PVEAuthCookie={ticket['ticket']}",
        "CSRFPreventionToken": ticket["CSRFPreventionToken"],
    }
    answer = node.endpoint.request(verb, path, headers, data=data)
    return {"status": answer.status_code, "errors": answer.json().get("errors") or {}}


def test_parameter_equal_to_the_path_is_accepted(node: Recorder) -> None:
    answer = node.endpoint.request(
        "PUT", "/nodes/pve/lxc/120/config", node.full, data={"vmid": 120, "node": "pve", "onboot": 0}
    )
    assert answer.status_code == 200


def test_running_container_cannot_be_cloned(node: Recorder) -> None:
    container = node.root.nodes("pve").lxc(120)
    node.endpoint.done(container.status.start.post(), node.root)
    try:
        answer = node.endpoint.request(
            "POST", "/nodes/pve/lxc/120/clone", node.full, data={"newid": 132, "full": 1}
        )
        reason = "Full clone of a running container is only possible from a snapshot"
        assert (answer.status_code, answer.reason) == (500, reason)
    finally:
        node.endpoint.done(container.status.stop.post(), node.root)


def test_missing_bridge_is_stored_and_reported(node: Recorder) -> None:
    """A node saves its own configuration, then fails to write LXC's, and answers 500."""
    container = node.root.nodes("pve").lxc(120)
    answer = node.endpoint.request(
        "PUT", "/nodes/pve/lxc/120/config", node.full, data={"net5": "name=eth5,bridge=nosuch0"}
    )
    assert (answer.status_code, answer.reason) == (500, "bridge 'nosuch0' does not exist")
    assert "bridge=nosuch0" in container.config.get()["net5"]
    container.config.put(delete="net5")


def test_mtu_is_checked_at_start(node: Recorder) -> None:
    vm, bridge = node.root.nodes("pve").qemu(100), "bridge=vmbr0"
    vm.config.put(net0=f"virtio,{bridge},mtu=9000")
    assert node.endpoint.failed(vm.status.start.post(), node.root) == (
        "netdev net0: MTU '9000' is bigger than the bridge MTU '1500' - adjust the MTU for the network "
        "device in the VM configuration, while ensuring that the bridge is configured as desired."
    )
    vm.config.put(net0=f"virtio,{bridge},mtu=500")
    small = "netdev net0: MTU '500' is smaller than the IP minimum MTU '576'"
    assert node.endpoint.failed(vm.status.start.post(), node.root) == small
    vm.config.put(net0=f"e1000,{bridge},mtu=9000")
    lines = node.endpoint.done(vm.status.start.post(), node.root)
    assert "WARN: netdev net0: ignoring MTU '9000', not using VirtIO" in lines
    try:
        answer = node.endpoint.request(
            "PUT", "/nodes/pve/qemu/100/config", node.full,
            data={"net0": vm.config.get()["net0"].replace("vmbr0", "nosuch0")},
        )  # fmt: skip
        assert answer.json()["errors"] == {"net0": "hotplug problem - interface nosuch0 does not exist\n"}
    finally:
        node.endpoint.done(vm.status.stop.post(), node.root)
