"""VLANs on bridges: VLAN-aware bridges filter where the kernel can, and are refused where it cannot."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.contract.endpoint import Endpoint, refused
from tests.contract.lab import tiny

SUPPORTED = not subprocess.run(
    ["unshare", "--net", "ip", "link", "add", "b", "type", "bridge", "vlan_filtering", "1"],
    capture_output=True,
).returncode


def inside(endpoint: Endpoint, command: str) -> str:
    words = [f"{endpoint.state}/enter-shell", "-c", command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def bridge(own_for_all: Endpoint) -> str:
    """A VLAN-aware bridge."""
    if not SUPPORTED:
        pytest.skip("this kernel cannot filter VLANs on bridges")
    root = own_for_all.root()
    root.nodes("pve").network.post(iface="vmbr5", type="bridge", autostart=1, bridge_vlan_aware=1)
    own_for_all.done(root.nodes("pve").network.put(), root)
    row = root.nodes("pve").network("vmbr5").get()
    assert (row["bridge_vlan_aware"], row["bridge_vids"]) == (1, "2-4094")
    return "vmbr5"


def vlans(endpoint: Endpoint, port: str) -> dict[int, list[str]]:
    rows = json.loads(inside(endpoint, f"bridge -j vlan show dev {port}"))
    return {vlan["vlan"]: vlan.get("flags", []) for row in rows for vlan in row["vlans"] if "vlan" in vlan}


def test_tagged_nic_is_in_its_vlan_only(own_for_all: Endpoint, bridge: str) -> None:
    root = own_for_all.root()
    options = {"memory": 32, "kvm": 0, "net0": f"virtio,bridge={bridge},tag=5"}
    own_for_all.done(root.nodes("pve").qemu.post(vmid=100, **options), root)
    own_for_all.done(root.nodes("pve").qemu(100).status.start.post(), root)
    assert vlans(own_for_all, "tap100i0") == {5: ["PVID", "Egress Untagged"]}
    nic = root.nodes("pve").qemu(100).config.get()["net0"].replace("tag=5", "tag=6,trunks=7;8")
    root.nodes("pve").qemu(100).config.put(net0=nic)
    assert vlans(own_for_all, "tap100i0") == {6: ["PVID", "Egress Untagged"], 7: [], 8: []}


@pytest.fixture(scope="module")
def containers(own_for_all: Endpoint, lxc: None, bridge: str) -> Iterator[dict[int, str]]:
    """VMID -> VLAN options of running containers with addresses in one network."""
    root = own_for_all.root()
    node = root.nodes("pve")
    parts = {"content": (None, "vztmpl"), "filename": ("tiny.tar.gz", tiny.template())}
    path = "/nodes/pve/storage/local/upload"
    headers = {"Authorization": f"PVEAPIToken={root_token(own_for_all)}"}
    own_for_all.done(own_for_all.request("POST", path, headers, files=parts).json()["data"], root)
    vlans = {201: ",tag=5", 202: ",tag=5", 203: ",tag=6", 204: ""}
    for vmid, vlan in vlans.items():
        net0 = f"name=eth0,bridge={bridge},ip=10.5.0.{vmid}/24{vlan}"
        options = {"ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1", "net0": net0}
        own_for_all.done(node.lxc.post(vmid=vmid, start=1, **options), root)
    yield vlans


def root_token(endpoint: Endpoint) -> str:
    facts = json.loads((endpoint.state / "endpoint.json").read_text())
    return f"{facts['user']}!{facts['token_id']}={facts['token_secret']}"


def test_only_guests_of_the_same_vlan_reach_each_other(
    own_for_all: Endpoint, containers: dict[int, str]
) -> None:
    first = own_for_all.root().nodes("pve").lxc(201).status.current.get()["pid"]
    ping = ["nsenter", f"--net=/proc/{first}/ns/net", "ping", "-c", "1", "-W", "2"]
    reached = [n for n in (202, 203, 204) if not subprocess.run([*ping, f"10.5.0.{n}"]).returncode]
    assert reached == [202]


@pytest.mark.skipif(SUPPORTED, reason="this kernel can filter VLANs on bridges")
def test_vlan_aware_bridges_are_refused_without_kernel_support(ours: Endpoint) -> None:
    network = ours.root().nodes(ours.node).network
    error = refused(network.post, iface="vmbr5", type="bridge", bridge_vlan_aware=1)
    assert (error.status_code, list(error.errors)) == (400, ["bridge_vlan_aware"])
    assert "CONFIG_BRIDGE_VLAN_FILTERING" in error.errors["bridge_vlan_aware"]
    assert "vmbr5" not in [row["iface"] for row in network.get()]


@pytest.mark.parametrize(
    ("vlan", "complaint"),
    [
        ("tag=5", "no physical interface on bridge 'vmbr0'"),
        ("trunks=5;6", "vlan aware feature need to be enabled to use trunks"),
    ],
)
def test_vlans_need_a_vlan_aware_bridge(own_for_all: Endpoint, vlan: str, complaint: str) -> None:
    """PVE, too, accepts the configuration and fails at the start."""
    root = own_for_all.root()
    vmid = int(root.cluster.nextid.get())
    own_for_all.done(
        root.nodes("pve").qemu.post(vmid=vmid, memory=32, kvm=0, net0=f"virtio,bridge=vmbr0,{vlan}"), root
    )
    vm = root.nodes("pve").qemu(vmid)
    upid = vm.status.start.post()
    assert own_for_all.failed(upid, root) == complaint
    log = root.nodes("pve").tasks(upid).log.get()
    assert complaint in log[0]["t"]  # clients that print only the first line show the reason
    own_for_all.done(vm.delete(), root)
