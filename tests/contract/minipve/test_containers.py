"""Containers: real LXC with a small busybox system, NICs on the node's bridges, complete removal."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from minipve.base.atomic import UNFINISHED
from minipve.base.paths import Paths
from minipve.guests.lxc import rootfs
from minipve.image import golden

from tests.contract.endpoint import Endpoint, refused
from tests.contract.lab import tiny
from tests.waiting import PATIENCE_S, until

ROOT = Path("/sys/fs/cgroup")
MODIFIED = "detected modified configuration - file changed by other user? Try again."
NET = "name=eth0,bridge=vmbr0,ip=10.77.0.{}/24"


@pytest.fixture(scope="module")
def node(own_for_all: Endpoint, lxc: None) -> Endpoint:
    """An endpoint with the small template and a second bridge."""
    root = own_for_all.root().nodes("pve")
    root.network.post(iface="vmbr1", type="bridge", autostart=1)
    own_for_all.done(root.network.put(), own_for_all.root())
    upload(own_for_all, "tiny.tar.gz", tiny.template())
    return own_for_all


def upload(endpoint: Endpoint, name: str, archive: bytes) -> str:
    """Upload a template through the API and return its volume ID."""
    parts = {"content": (None, "vztmpl"), "filename": (name, archive)}
    path = f"/nodes/{endpoint.node}/storage/local/upload"
    endpoint.done(endpoint.request("POST", path, files=parts).json()["data"])
    return f"local:vztmpl/{name}"


@pytest.fixture
def make(node: Endpoint) -> Iterator[Callable[..., Any]]:
    """Create (and start) containers with the lab's token; they are removed at the end."""
    vmids: list[int] = []

    def make(vmid: int = 300, start: bool = True, **options: Any) -> Any:
        vmids.append(vmid)
        create(node, vmid, **options)
        if start:
            node.done(ct(node, vmid).status.start.post())
            until(lambda: _treats_sigpwr(ct(node, vmid), "SigCgt"), "the first process to end on SIGPWR")
        return ct(node, vmid)

    yield make
    for vmid in vmids:
        if vmid in {row["vmid"] for row in node.api().nodes("pve").lxc.get()}:
            node.done(ct(node, vmid).delete(force=1))


def ct(endpoint: Endpoint, vmid: int) -> Any:
    return endpoint.api().nodes(endpoint.node).lxc(vmid)


def create(endpoint: Endpoint, vmid: int, **options: Any) -> list[str]:
    """Create a container in the lab's pool with the lab's token, and return the task's log."""
    defaults = {
        "ostemplate": "local:vztmpl/tiny.tar.gz",
        "memory": 64,
        "pool": endpoint.pool,
        "rootfs": "local:1",
    }
    return endpoint.done(endpoint.api().nodes(endpoint.node).lxc.post(vmid=vmid, **(defaults | options)))


def shell(endpoint: Endpoint, line: str) -> str:
    """Run a command in the node's network and return its output."""
    assert endpoint.state is not None
    result = subprocess.run([endpoint.state / "enter-shell", "-c", line], capture_output=True, text=True)
    return result.stdout + result.stderr


def link(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """Return the host's end of a NIC as `ip -j` shows it; empty if it does not exist."""
    output = shell(endpoint, f"ip -j link show dev {name} 2>/dev/null")
    return dict(json.loads(output)[0]) if output else {}


def inside(container: Any, line: str) -> str:
    """Run a command in a running container and return its output."""
    words = ["nsenter", "-t", str(container.status.current.get()["pid"]), "-a", "sh", "-c", line]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def rate_of(endpoint: Endpoint, name: str) -> str:
    return shell(endpoint, f"tc class show dev {name}")


def groups(endpoint: Endpoint, vmid: int) -> list[Path]:
    """Return the control groups of a container of this endpoint, in all hierarchies and of all nodes."""
    assert endpoint.state is not None
    homes = [str(home).encode() for home in (endpoint.state, *endpoint.state.glob("nodes/*"))]
    own = [f"minipve-{hashlib.sha256(home).hexdigest()[:8]}/{vmid}" for home in homes]
    return [group for name in own for group in (*ROOT.glob(name), *ROOT.glob(f"*/{name}"))]


def traces(endpoint: Endpoint, vmid: int) -> list[str]:
    """Return everything that is left of a container on this host: files, groups, links, mounts."""
    assert endpoint.state is not None
    mine = re.compile(rf"(?<![0-9a-f]){vmid}(?![0-9a-f])")  # the VMID, but not as a part of a digest
    files = [path for path in endpoint.state.rglob("*") if mine.search(path.name)]
    leftovers = [str(path) for path in (*groups(endpoint, vmid), *files)]
    leftovers = [path for path in leftovers if "/log/" not in path and "/lock/" not in path]
    leftovers += [line for line in shell(endpoint, "ip -br link").splitlines() if f"{vmid}i" in line]
    mounts = Path("/proc/mounts").read_text().splitlines()
    leftovers += [line for line in mounts if line.startswith("overlay") and str(endpoint.state) in line]
    return leftovers


def test_start_shutdown_and_removal(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(hostname="client", cores=1, net0=NET.format(11) + ",rate=12.5", nameserver="10.77.0.1")
    assert shell(node, "ping -c 1 -W 2 10.77.0.11 >/dev/null && echo there") == "there\n"
    assert inside(container, "cat /etc/hostname /etc/resolv.conf").splitlines()[0] == "client"
    assert "10.77.0.11 client" in inside(container, "cat /etc/hosts")
    assert "rate 104857Kbit" in rate_of(node, "veth300i0")
    assert link(node, "veth300i0")["master"] == "vmbr0"
    limits = [group / name for group in groups(node, 300) for name in ("cpu.cfs_quota_us", "cpu.max")]
    quotas = {file.read_text().split()[0] for file in limits if file.exists()}
    assert quotas == {"20000"} or os.cpu_count() == 1, "the time of one processor in each 20 ms"
    row = node.api().nodes("pve").lxc.get()[0]
    assert (row["status"], row["cpus"], row["maxmem"], row["pid"] > 1) == ("running", 1, 64 * 2**20, True)
    guests = node.api().cluster.resources.get(type="vm")
    assert [(guest["id"], guest["type"], guest["status"]) for guest in guests] == [
        ("lxc/300", "lxc", "running")
    ]
    log = node.done(container.status.shutdown.post(timeout=50))
    assert not any("got timeout" in line for line in log)
    assert container.status.current.get()["status"] == "stopped"
    assert link(node, "veth300i0") == {} and groups(node, 300) == []
    node.done(container.delete())
    assert traces(node, 300) == []


def test_root_of_a_container_is_an_ordinary_user_of_the_host(
    node: Endpoint, make: Callable[..., Any]
) -> None:
    container = make(net0=NET.format(11))
    pid = container.status.current.get()["pid"]
    outside = Path(f"/proc/{pid}/status").read_text()
    uid = int(outside.partition("Uid:\t")[2].split()[0])
    assert uid >= 65536 and inside(container, "cat /proc/self/uid_map").split()[1] == str(uid)
    assert inside(container, "ls -ln /etc/hostname /root").split()[2] == "0"
    assert container.config.get()["unprivileged"] == 1


def test_failed_start_is_a_task_of_its_own(node: Endpoint, make: Callable[..., Any]) -> None:
    """The guest's bridge has no VLANs, so it is created and does not start."""
    root = node.root()
    ours, net0 = root.nodes(node.node), "bridge=vmbr1,tag=5"
    container = {"vmid": 303, "ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1"}
    created = ours.lxc.post(net0=f"name=eth0,{net0}", start=1, **container)
    node.done(created, root)
    node.failed(node.next_start(303, root), root)
    machine = ours.qemu.post(vmid=304, net0=f"virtio,{net0}", memory=32, kvm=0, start=1)
    assert "Execute autostart" in node.done(machine, root)
    node.failed(node.next_start(304, root), root)
    types = {row["type"] for vmid in (303, 304) for row in ours.tasks.get(vmid=vmid)}
    assert types == {"vzcreate", "vzstart", "qmcreate", "qmstart"}
    node.done(ours.lxc(303).delete(), root)
    node.done(ours.qemu(304).delete(), root)


def test_only_root_can_set_the_lock(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(start=False)
    for change in ({"lock": "destroyed"}, {"lock": "create"}, {"delete": "lock"}, {"revert": "lock"}):
        assert refused(container.config.put, **change).content == "only root can set 'lock' config"
    post = node.api().nodes(node.node).lxc.post
    params = {"ostemplate": "local:vztmpl/tiny.tar.gz", "pool": node.pool, "rootfs": "local:1"}
    assert refused(post, vmid=301, lock="create", **params).content == "only root can set 'lock' config"
    node.root().nodes(node.node).lxc(300).config.put(lock="backup")
    assert container.config.get()["lock"] == "backup"
    assert node.failed(container.status.start.post()) == "CT is locked (backup)"
    unlock(node, 300)


def unlock(endpoint: Endpoint, vmid: int) -> None:
    """Do what ``pct unlock`` does on a node: the API cannot remove the lock of a container."""
    assert endpoint.state is not None
    file = endpoint.state / f"etc/pve/lxc/{vmid}.conf"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith("lock:")))


def test_memory_limit_changes_live(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(memory=64, swap=0, cores=1)

    def limit() -> set[str]:
        files = [f for group in groups(node, 300) for f in group.glob("memory.[lm][ia][mx]*")]
        names = ("memory.limit_in_bytes", "memory.max")
        return {file.read_text().strip() for file in files if file.name in names}

    assert limit() == {str(64 * 2**20)}
    for memory in (128, 32):
        container.config.put(memory=memory, cores=2 if memory == 128 else 1)
        assert limit() == {str(memory * 2**20)}
        assert container.status.current.get()["maxmem"] == memory * 2**20


def test_number_of_processes_is_limited(node: Endpoint, make: Callable[..., Any]) -> None:
    make(memory=64)
    limits = [file for group in groups(node, 300) for file in group.glob("pids.max")]
    if not limits:
        pytest.skip("this kernel does not count the processes of a control group")
    assert {file.read_text() for file in limits} == {"4096\n"}


def test_nic_changes_live(node: Endpoint, make: Callable[..., Any]) -> None:
    """The table of LXC-FACTS, as a real node showed it."""
    mac = "02:00:00:00:00:01"
    base = f"name=eth0,bridge=vmbr0,hwaddr={mac},ip=10.77.0.11/24"
    container = make(net0=base)
    number = link(node, "veth300i0")["ifindex"]
    container.config.put(net0=f"{base},rate=1")
    assert "rate 8388Kbit" in rate_of(node, "veth300i0")
    container.config.put(net0=base.replace("vmbr0", "vmbr1") + ",rate=1")
    assert link(node, "veth300i0")["master"] == "vmbr1" and "8388Kbit" in rate_of(node, "veth300i0")
    container.config.put(net0=f"{base},link_down=1")
    assert "master" not in link(node, "veth300i0") and "UP" not in link(node, "veth300i0")["flags"]
    container.config.put(net0=f"{base},mtu=1400")
    assert link(node, "veth300i0")["mtu"] == 1500 and "mtu=1400" in container.config.get()["net0"]
    assert [row for row in container.pending.get() if "pending" in row or "delete" in row] == []
    container.config.put(net0=base.replace("10.77.0.11", "10.77.0.12"))
    addresses = {row["name"]: row.get("inet") for row in container.interfaces.get()}
    assert addresses["eth0"] == "10.77.0.12/24"
    assert "10.77.0.12" in inside(container, "cat /etc/network/interfaces")
    assert link(node, "veth300i0")["ifindex"] == number, "the device has been the same so far"
    container.config.put(net0=base.replace("eth0", "lab0"))
    assert link(node, "veth300i0")["ifindex"] != number
    assert {row["name"] for row in container.interfaces.get()} == {"lo", "lab0"}
    assert rate_of(node, "veth300i0") == ""


def test_nics_are_added_and_removed_live(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(net0=NET.format(11))
    container.config.put(net1="name=eth1,bridge=vmbr1,ip=10.78.0.11/24,rate=2")
    assert {row["name"] for row in container.interfaces.get()} == {"lo", "eth0", "eth1"}
    assert "16777Kbit" in rate_of(node, "veth300i1")
    container.config.put(delete="net1")
    assert link(node, "veth300i1") == {} and "net1" not in container.config.get()
    root = node.root().nodes("pve").lxc(300)  # the lab's token may not even try
    error = refused(root.config.put, net1="name=eth1,bridge=nosuch0")
    assert error.errors == {"net1": "unable to hotplug net1: bridge 'nosuch0' does not exist\n"}
    assert "net1" not in container.config.get()
    error = refused(root.config.put, net0=NET.format(11).replace("vmbr0", "nosuch0"))
    moved = "unable to hotplug net0: {} does not exist\n"
    assert error.errors["net0"] in (
        moved.format("bridge 'nosuch0'"),
        moved.format("interface nosuch0") + "\n",
    )
    assert refused(container.config.put, net1="name=eth1,bridge=vmbr1,mtu=9000").status_code == 500
    node.done(container.status.stop.post())
    error = refused(root.config.put, net1="name=eth1,bridge=nosuch0")
    assert (error.status_code, error.content) == (500, "bridge 'nosuch0' does not exist")


def test_changes_of_other_options(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(hostname="a")
    container.config.put(hostname="b", tags="Two;one", description="x", onboot=1)
    config = container.config.get()
    assert (config["hostname"], config["tags"], config["description"]) == ("b", "one;two", "x\n")
    container.config.put(features="nesting=1")
    rows = {row["key"]: row for row in container.pending.get()}
    assert rows["features"] == {"key": "features", "pending": "nesting=1"}
    container.config.put(revert="features")
    assert "features" not in {row["key"] for row in container.pending.get()}
    for params, text in (
        ({}, "no options specified"),
        ({"delete": "memory"}, "unable to delete required option 'memory'"),
        ({"unprivileged": 0}, "unable to modify read-only option: 'unprivileged'"),
        ({"hostname": "c", "digest": "0" * 40}, MODIFIED),
    ):
        error = refused(container.config.put, **params)
        assert (error.status_code, error.content) == (500, text)
    container.config.put(delete="timezone")
    assert refused(container.config.put, mp0="local:1,mp=/x").errors == {"mp0": "not supported here"}


def test_reboot_from_inside_keeps_the_rate_cap(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(net0=NET.format(11) + ",rate=1")
    before = container.status.current.get()["pid"]
    inside(container, "reboot -f")
    deadline = time.monotonic() + PATIENCE_S
    while container.status.current.get().get("pid") in (before, None) or "8388Kbit" not in rate_of(
        node, "veth300i0"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert link(node, "veth300i0")["master"] == "vmbr0"


def test_container_that_ends_by_itself_leaves_nothing(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make(net0=NET.format(11) + ",rate=1")
    os.kill(container.status.current.get()["pid"], 9)
    deadline = time.monotonic() + PATIENCE_S
    while groups(node, 300) or link(node, "ifb300i0") or link(node, "veth300i0"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert container.status.current.get()["status"] == "stopped"


def _treats_sigpwr(container: Any, signals: str) -> bool:
    """Is SIGPWR among these signals (``SigCgt``: caught, ``SigIgn``: ignored) of the first process?"""
    pid = container.status.current.get()["pid"]
    match = re.search(rf"^{signals}:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> (signal.SIGPWR - 1) & 1)


def test_shutdown_that_is_ignored_needs_force(node: Endpoint, make: Callable[..., Any]) -> None:
    container = make()
    inside(container, "ls >/etc/stubborn")
    node.done(container.status.reboot.post(timeout=50))
    until(lambda: _treats_sigpwr(container, "SigIgn"), "the first process to ignore SIGPWR")
    assert "got timeout" in node.failed(container.status.shutdown.post(timeout=0))
    assert container.status.current.get()["status"] == "running"
    node.done(container.status.shutdown.post(timeout=0, forceStop=1))
    assert container.status.current.get()["status"] == "stopped"


def test_clone_and_template_of_a_container(node: Endpoint, make: Callable[..., Any]) -> None:
    source = make(start=False, hostname="source", net0=NET.format(11) + ",rate=3")
    mac = source.config.get()["net0"].partition("hwaddr=")[2][:17]
    error = refused(source.clone.post, newid=301, full=0, pool=node.pool)
    assert error.content.startswith("Linked clone feature for 'local:300/vm-300-disk-0.raw'")
    node.done(source.clone.post(newid=301, pool=node.pool, hostname="copy"))
    copy = ct(node, 301)
    try:
        config = copy.config.get()
        assert config["hostname"] == "copy" and "rate=3" in config["net0"] and mac not in config["net0"]
        node.done(copy.status.start.post())
        assert refused(copy.clone.post, newid=302, pool=node.pool).status_code == 500
    finally:
        node.done(copy.delete(force=1))
    assert source.template.post() is None
    assert source.config.get()["rootfs"] == "local:300/base-300-disk-0.raw,size=1G"
    assert node.failed(source.status.start.post()) == "you can't start a CT if it's a template"
    assert refused(source.template.post).content == "you can't convert a template to a template"


def test_resize_and_refused_snapshot(node: Endpoint, make: Callable[..., Any], allow: Any) -> None:
    container = make(start=False)
    node.done(container.resize.put(disk="rootfs", size="+1G"))
    assert container.config.get()["rootfs"].endswith("size=2G")
    assert refused(container.resize.put, disk="rootfs", size="1G").content == "unable to shrink disk size"
    root = node.root()
    upid = root.nodes("pve").lxc(300).snapshot.post(snapname="one")
    assert node.failed(upid, root) == "snapshot feature is not available"
    assert len(container.rrddata.get(timeframe="hour")) == 60


def test_password_and_ssh_keys_are_set(node: Endpoint, make: Callable[..., Any]) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx1o2y9mQ0m3n6u0kq0h1Yv0k3rQzq3w7m0d1mY2aXK lab"
    container = make(password="secret-pass", **{"ssh-public-keys": key})
    assert inside(container, "cat /root/.ssh/authorized_keys") == key
    assert inside(container, "cat /etc/shadow").startswith("root:$5$")
    assert inside(container, "cat /etc/ssh/ssh_host_ed25519_key.pub").startswith("ssh-ed25519 ")
    config = json.dumps(container.config.get())
    assert "secret" not in config and "ssh-ed25519" not in config


def test_golden_template_is_unpacked_once_for_all_instances(tmp_path: Path, lxc: None) -> None:
    first, second = (Paths(tmp_path / name, tmp_path / "cache") for name in ("first", "second"))
    golden_template = golden.template_path(first)
    golden_template.parent.mkdir(parents=True)
    golden_template.write_bytes(tiny.template())
    unpacked = golden_template.parent / "trees"
    (unpacked / f"{UNFINISHED}left").mkdir(parents=True)  # by an instance that was killed
    uploaded, other = tmp_path / "uploaded.tar.gz", tmp_path / "other.tar.gz"
    uploaded.write_bytes(golden_template.read_bytes())
    other.write_bytes(tiny.template(systemd=True))
    for paths in (first, second):
        paths.state.mkdir()
        rootfs.create(100, uploaded, 100_000, 2**30, paths)
    rootfs.create(101, other, 100_000, 2**30, first)
    assert {path.name for path in unpacked.iterdir()} == {".lock", "100000"}, "a stranger's is not kept"
    tops = [rootfs.layers(100, paths)[0] for paths in (first, second)]
    shells = [(top / "usr/bin/busybox").stat() for top in (unpacked / "100000", *tops)]
    assert len({(shell.st_ino, shell.st_uid) for shell in shells}) == 1
    assert {(top.stat().st_uid, top.stat().st_mode & 0o777) for top in tops} == {(100_000, 0o755)}
    shutil.rmtree(tmp_path / "cache")
    assert (tops[0] / "etc/debian_version").read_text() == "12\n", "what a lab has stays its own"


def test_parallel_containers_of_one_template(node: Endpoint, make: Callable[..., Any]) -> None:
    assert node.state is not None
    upload(node, "again.tar.gz", tiny.template(systemd=True))
    api, vmids = node.api().nodes("pve"), range(310, 315)
    params = {"memory": 64, "pool": node.pool, "start": 1, "features": "nesting=1"}
    upids = [
        api.lxc.post(vmid=n, ostemplate="local:vztmpl/again.tar.gz", net0=NET.format(n - 250), **params)
        for n in vmids
    ]
    try:
        for upid in upids:
            node.done(upid)
        assert len(list((node.state / "templates").iterdir())) == 2, "each archive is unpacked once"
        assert {row["status"] for row in api.lxc.get()} == {"running"}
        node.done(api.storage("local").content("vztmpl/again.tar.gz").delete())
        assert all(inside(ct(node, n), "cat /etc/debian_version") == "12" for n in vmids)
    finally:
        for upid in [ct(node, n).delete(force=1) for n in vmids]:
            node.done(upid)
    ours = node.root().nodes("pve").storage("local").content
    node.done(ours("vztmpl/nosuch.tar.gz").delete(), node.root())  # whoever removes a template tidies up
    assert len(list((node.state / "templates").iterdir())) == 1
