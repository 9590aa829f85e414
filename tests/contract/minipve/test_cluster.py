"""A cluster of three nodes: placement of guests, templates, traffic over tunnels, a node that is off."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import POOL, minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.contract.lab import tiny
from tests.contract.minipve.test_containers import create, ct, groups, inside, upload
from tests.waiting import PATIENCE_S

NODES = ("pve", "pve2", "pve3")
PEERS = "10.77.0.1,10.77.0.2,10.77.0.3"
ZONE = POOL  # the zone on which the lab of this pool has privileges
PLACES = {301: "pve", 302: "pve2", 303: "pve3", 304: "pve3"}


@pytest.fixture(scope="module")
def cluster(lxc: None, start: Callable[..., Endpoint]) -> Endpoint:
    return start("--nodes", "3")


def at(cluster: Endpoint, node: str) -> Endpoint:
    """Return the endpoint with another node as its default."""
    return replace(cluster, node=node)


def shell(cluster: Endpoint, node: str, line: str) -> str:
    """Run a command in a node's network and return its output."""
    assert cluster.state is not None
    home = cluster.state if node == "pve" else cluster.state / "nodes" / node
    result = subprocess.run([home / "enter-shell", "-c", line], capture_output=True, text=True)
    return result.stdout + result.stderr


def applied(cluster: Endpoint) -> None:
    """Apply the zones with the lab's token, and wait for every node."""
    cluster.done(cluster.api().cluster.sdn.put())
    deadline = time.monotonic() + PATIENCE_S
    for node in NODES:
        tasks = cluster.root().nodes(node).tasks
        while any(row["status"] == "RUNNING" for row in tasks.get(source="all", typefilter="srvreload")):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_stopped_vm_migrates_and_starts_on_the_other_node(cluster: Endpoint) -> None:
    root = cluster.root()
    options = {"memory": 32, "kvm": 0, "scsi0": "local:1,format=qcow2", "ide2": "local:cloudinit"}
    cluster.done(root.nodes("pve").qemu.post(vmid=310, net0="virtio,bridge=vmbr0", **options), root)
    cluster.done(root.nodes("pve").qemu(310).snapshot.post(snapname="one"), root)
    config = root.nodes("pve").qemu(310).config.get()
    before = root.nodes("pve").qemu(310).migrate.get()
    assert (before["running"], before["allowed_nodes"]) == (0, ["pve2", "pve3"])
    disks = [f"local:310/vm-310-{name}.qcow2" for name in ("cloudinit", "disk-0")]
    assert sorted(row["volid"] for row in before["local_disks"]) == disks
    log = cluster.done(root.nodes("pve").qemu(310).migrate.post(target="pve3"), root)
    assert log[0] == "starting migration of VM 310 to node 'pve3' (10.77.0.3)"
    assert log[-2].startswith("migration finished successfully (duration 00:00:0")
    assert root.nodes("pve3").qemu(310).config.get() == config
    assert [row["name"] for row in root.nodes("pve3").qemu(310).snapshot.get()] == ["one", "current"]
    assert not root.nodes("pve").storage("local").content.get(content="images")
    assert [row["node"] for row in root.cluster.resources.get(type="vm") if row["vmid"] == 310] == ["pve3"]
    vm = root.nodes("pve3").qemu(310)
    cluster.done(vm.status.start.post(), root)
    assert refused(vm.migrate.post, target="pve").content == "can't migrate running VM without --online"
    error = refused(vm.migrate.post, target="pve", online=1)
    assert error.errors == {"online": "not supported here: only stopped VMs are migrated"}
    assert vm.migrate.get()["allowed_nodes"] == []
    cluster.done(vm.status.stop.post(), root)
    cluster.done(vm.delete(), root)


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ({"target": "pve"}, 400, "target is local node."),
        ({"target": "pve9"}, 500, "no such cluster node 'pve9'"),
        ({"target": "pve2", "targetstorage": "other"}, 400, "the only storage is local"),
        ({}, 400, "property is missing and it is not optional"),
    ],
)
def test_impossible_migration_is_refused(
    cluster: Endpoint, options: dict[str, str], status: int, text: str
) -> None:
    root = cluster.root()
    cluster.done(root.nodes("pve").qemu.post(vmid=311, memory=32), root)
    error = refused(root.nodes("pve").qemu(311).migrate.post, **options)
    assert (error.status_code, text in str(error)) == (status, True)
    cluster.done(root.nodes("pve").qemu(311).delete(), root)


@pytest.fixture(scope="module")
def lab(cluster: Endpoint) -> Endpoint:
    """Four containers on three nodes, connected by a vnet and created with the lab's token."""
    sdn = cluster.api().cluster.sdn
    sdn.zones.post(zone=ZONE, type="vxlan", peers=PEERS, nodes=",".join(NODES))
    sdn.vnets.post(vnet="lab0", zone=ZONE, tag=77, alias="bridge of lab contract")
    applied(cluster)
    for node in NODES:
        upload(at(cluster, node), "tiny.tar.gz", tiny.template())
    for vmid, node in PLACES.items():
        nets = {
            "net0": f"name=eth0,bridge=vmbr0,ip=10.77.0.{vmid - 200}/24",
            "net1": f"name=eth1,bridge=lab0,ip=10.78.0.{vmid - 200}/24",
        }
        create(at(cluster, node), vmid, **nets)
        cluster.done(ct(at(cluster, node), vmid).status.start.post())
    return cluster


def test_lists_show_all_nodes(cluster: Endpoint) -> None:
    root = cluster.root()
    assert [(row["node"], row["status"]) for row in root.nodes.get()] == [(n, "online") for n in NODES]
    whole, *members = root.cluster.status.get()
    assert (whole["type"], whole["nodes"], whole["quorate"]) == ("cluster", 3, 1)
    assert [(row["name"], row["ip"], row["nodeid"], row["local"]) for row in members] == [
        ("pve", "10.77.0.1", 1, 1),
        ("pve2", "10.77.0.2", 2, 0),
        ("pve3", "10.77.0.3", 3, 0),
    ]
    rows = root.cluster.resources.get(type="storage")
    assert [row["id"] for row in rows] == [f"storage/{node}/local" for node in NODES]


def test_number_of_nodes_cannot_change(cluster: Endpoint) -> None:
    assert cluster.state is not None
    result = minipve("serve", "--detach", "--nodes", "2", state=cluster.state)
    assert result.returncode == 1 and "has 3 nodes; the number cannot change to 2" in result.stderr
    again = minipve("serve", "--detach", state=cluster.state)
    assert again.returncode == 0 and again.stdout.startswith("running")


def test_guest_is_on_its_node(lab: Endpoint) -> None:
    rows = lab.api().cluster.resources.get(type="vm")
    assert {row["vmid"]: row["node"] for row in rows} == PLACES
    listed = {node: [row["vmid"] for row in lab.api().nodes(node).lxc.get()] for node in NODES}
    assert {vmid: node for node, vmids in listed.items() for vmid in vmids} == PLACES
    members = lab.api().pools.get(poolid=POOL)[0]["members"]
    assert {row["vmid"]: row["node"] for row in members} == PLACES
    elsewhere = refused(ct(at(lab, "pve"), 303).config.get)
    assert "Configuration file 'nodes/pve/lxc/303.conf' does not exist" in elsewhere.content


def test_vmid_is_unique_across_nodes(lab: Endpoint) -> None:
    params = {"ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1", "pool": POOL}
    error = refused(lab.api().nodes("pve").lxc.post, vmid=303, **params)
    assert "CT 303 already exists on node 'pve3'" in error.content
    assert refused(lab.api().cluster.nextid.get, vmid=302).errors == {"vmid": "VM 302 already exists"}


def test_template_is_on_one_node(lab: Endpoint) -> None:
    upload(at(lab, "pve2"), "there.tar.gz", tiny.template())
    volumes = {
        node: [row["volid"] for row in lab.api().nodes(node).storage("local").content.get(content="vztmpl")]
        for node in NODES
    }
    assert [node for node in NODES if "local:vztmpl/there.tar.gz" in volumes[node]] == ["pve2"]
    lab.done(lab.api().nodes("pve2").storage("local").content("local:vztmpl/there.tar.gz").delete())


def test_clone_to_another_node_is_refused(lab: Endpoint) -> None:
    clone = ct(at(lab, "pve2"), 302).clone.post
    moved = refused(clone, newid=390, full=1, pool=POOL, target="pve3", storage="local")
    assert "can't clone to non-shared storage 'local'" in moved.content
    nowhere = refused(clone, newid=390, full=1, pool=POOL, target="pve9")
    assert "no such cluster node 'pve9'" in nowhere.content


def test_unknown_node_is_an_error(lab: Endpoint) -> None:
    assert "hostname lookup 'pve9' failed" in refused(lab.api().nodes("pve9").lxc.get).content


def _reaches(container: Any, address: str) -> bool:
    """Ping for up to ten seconds: the task ends when init runs, which then sets up the network."""
    tries = (
        f"for n in 1 2 3 4 5 6 7 8 9 10; do ping -c 1 -W 1 {address} >/dev/null && echo there && break; done"
    )
    return inside(container, tries) == "there"


@pytest.mark.parametrize("peer", [302, 303])
def test_containers_on_two_nodes_reach_each_other(lab: Endpoint, peer: int) -> None:
    container = ct(at(lab, "pve"), 301)
    for subnet in ("10.77.0", "10.78.0"):
        assert "2 packets received" in inside(container, f"ping -c 2 -W 5 {subnet}.{peer - 200}")


def test_mtu_leaves_room_for_the_tunnels_headers(lab: Endpoint) -> None:
    container = ct(at(lab, "pve2"), 302)
    assert "mtu 1450" in inside(container, "ip link show eth1")
    assert "mtu 1500" in inside(container, "ip link show eth0")
    assert "1 packets received" in inside(
        container, "ping -c 1 -W 5 -s 1422 10.78.0.103"
    )  # 1450 with headers
    tunnel = json.loads(shell(lab, "pve2", "ip -j -d link show vxlan_lab0"))[0]
    assert (tunnel["mtu"], tunnel["master"]) == (1450, "lab0")
    assert tunnel["linkinfo"]["info_data"]["learning"] is True


def _requests_at_the_client(lab: Endpoint, source: int, target: int) -> int:
    """Count how many of three ICMP requests pass the NIC of the container on the first node."""
    device, words = "veth301i1", f"icmp and icmp[0] == 8 and dst 10.78.0.{target - 200}"
    line = f"exec tcpdump -l -n --immediate-mode -i {device} '{words}' 2>&1"
    command = [lab.state / "enter-shell", "-c", line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as tcpdump:
        assert tcpdump.stdout is not None
        while "listening on" not in (output := tcpdump.stdout.readline()):
            assert output, "tcpdump ended"
        output = inside(ct(at(lab, PLACES[source]), source), f"ping -c 3 -W 20 10.78.0.{target - 200}")
        assert "3 packets received" in output
        os.killpg(tcpdump.pid, signal.SIGINT)
        captured = tcpdump.communicate()[0]
    return len(re.findall("ICMP echo request", captured))


def _mode(lab: Endpoint, ageing: int, learning: str) -> None:
    for node in NODES:
        shell(lab, node, f"ip link set lab0 type bridge ageing_time {ageing}")
        shell(lab, node, f"ip link set vxlan_lab0 type vxlan {learning}")
        shell(lab, node, "bridge fdb flush dev vxlan_lab0 self dynamic")


def test_flooding_vnet_without_learning_shows_every_frame(lab: Endpoint) -> None:
    pairs = [(302, 303), (303, 304)]  # on two other nodes; on one other node
    _mode(lab, 30000, "learning")
    for source, target in pairs:
        inside(ct(at(lab, PLACES[source]), source), f"ping -c 1 10.78.0.{target - 200}")
    assert [_requests_at_the_client(lab, *pair) for pair in pairs] == [0, 0]
    _mode(lab, 0, "nolearning")
    assert [_requests_at_the_client(lab, *pair) for pair in pairs] == [3, 3]
    _mode(lab, 30000, "learning")


def test_learning_tunnel_hides_frames_between_other_nodes(lab: Endpoint) -> None:
    _mode(lab, 0, "learning")
    inside(ct(at(lab, "pve2"), 302), "ping -c 1 10.78.0.103")
    assert _requests_at_the_client(lab, 302, 303) == 0  # the bridges flood, the tunnel does not
    _mode(lab, 30000, "learning")


def _groups(lab: Endpoint) -> list[Path]:
    """Return the control groups of 303 on this cluster's third node."""
    folder = f"minipve-{hashlib.sha256(f'{lab.state}/nodes/pve3'.encode()).hexdigest()[:8]}"
    return [path for path in groups(lab, 303) if path.parent.name == folder]


def test_node_switched_off_and_on(lab: Endpoint) -> None:
    assert lab.state is not None
    switch = ("node", "pve3")
    assert _groups(lab)
    assert minipve(*switch, "off", state=lab.state).returncode == 0
    try:
        answer = lab.request("GET", "/nodes/pve3/lxc")
        assert (answer.status_code, answer.reason, answer.text) == (595, "No route to host", "")
        assert {row["node"]: row["status"] for row in lab.api().nodes.get()}["pve3"] == "offline"
        guests = {row["vmid"]: row["status"] for row in lab.api().cluster.resources.get(type="vm")}
        assert guests == {301: "running", 302: "running", 303: "unknown", 304: "unknown"}
        assert _groups(lab) == []
        assert "0 packets received" in inside(ct(at(lab, "pve"), 301), "ping -c 1 -W 1 10.78.0.103")
        assert lab.root().cluster.status.get()[0]["quorate"] == 1
        applied_beside = lab.api().cluster.sdn.put()
        assert "595 No route to host" in lab.done(applied_beside)
    finally:
        assert minipve(*switch, "on", state=lab.state).returncode == 0
    assert ct(at(lab, "pve3"), 303).status.current.get()["status"] == "stopped"
    lab.done(ct(at(lab, "pve3"), 303).status.start.post())
    assert _reaches(ct(at(lab, "pve"), 301), "10.78.0.103")


def test_first_node_cannot_be_switched_off(lab: Endpoint) -> None:
    assert lab.state is not None
    result = minipve("node", "pve", "off", state=lab.state)
    assert result.returncode == 1
    assert "'pve' is not an additional node; additional nodes: pve2, pve3" in result.stderr


def test_guests_survive_a_killed_endpoint(lab: Endpoint) -> None:
    assert lab.state is not None
    before: dict[int, Any] = {
        vmid: ct(at(lab, node), vmid).status.current.get().get("pid") for vmid, node in PLACES.items()
    }
    pid = int((lab.state / "run/endpoint.lock").read_text().split()[0])
    subprocess.run(["kill", "-9", str(pid)], check=True)
    again = serve(lab.state)
    for vmid, node in PLACES.items():
        assert ct(at(again, node), vmid).status.current.get().get("pid") == before[vmid]
    assert _reaches(ct(at(again, "pve"), 301), "10.78.0.102")
