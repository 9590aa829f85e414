"""The pure parts of containers: NICs on paper, LXC's configuration, limits, ids, files that a node writes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from minipve import host
from minipve.config import container_nics
from minipve.config.kinds import LXC
from minipve.config.store import GuestConfig, GuestStore
from minipve.container import changes, options
from minipve.errors import ApiError
from minipve.lxc import cgroups, chroot, configuration, inotify, rootfs, running, setup, user_ids
from minipve.paths import Paths
from minipve.process import MachineError

NET = "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,gw=10.77.0.1,rate=12.5"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_a_nic_as_the_node_stores_it() -> None:
    stored = container_nics.canonical(
        "rate=12.5,ip=10.77.0.11/24,bridge=vmbr1,hwaddr=02:da:5c:00:00:12,name=eth1,mtu=1500"
    )
    assert stored == (
        "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,mtu=1500,rate=12.5,type=veth"
    )
    assert container_nics.canonical("name=eth0").startswith("name=eth0,hwaddr=BC:24:11:")
    assert container_nics.with_new_mac(stored).partition("hwaddr=")[2][:8] == "BC:24:11"


@pytest.mark.parametrize(
    ("rate", "bytes_s"), [("1", 1048576), ("12.5", 13107200), ("0.03", 31457), ("0", None), ("-1", None)]
)
def test_a_rate_is_in_mebibytes(rate: str, bytes_s: int | None) -> None:
    """LXC-FACTS: rate=1 -> 8388 kbit, 12.5 -> 104857 kbit, 0.03 -> 251656 bit; 0 and -1 are no cap."""
    assert container_nics.parse(f"name=eth0,bridge=vmbr0,rate={rate}").rate_bytes == bytes_s


def test_nics_by_their_number() -> None:
    config = {f"net{n}": f"name=eth{n}" for n in (10, 2, 0)}
    assert list(container_nics.of_config(config)) == [0, 2, 10]


def test_lxc_is_told_what_the_config_says(paths: Paths) -> None:
    given = {"hostname": "client.lab", "net1": NET, "features": "nesting=1"}
    lines = configuration.text(100, given, paths, 100_000).splitlines()
    assert {
        "lxc.uts.name = client",
        "lxc.idmap = u 0 100000 65536",
        "lxc.net.1.veth.pair = veth100i1",
    } <= set(lines)
    assert "lxc.net.1.hwaddr = 02:DA:5C:00:00:12" in lines and "lxc.net.1.link = vmbr1" in lines
    assert not any(line.startswith("lxc.net.1.ipv4") for line in lines), "the container sets its address"
    managed = configuration.text(100, {"net1": f"{NET},host-managed=1"}, paths, 0).splitlines()
    assert "lxc.net.1.ipv4.address = 10.77.0.11/24" in managed
    assert not any("idmap" in line for line in managed), "a privileged one"
    down = configuration.text(100, {"net1": f"{NET},link_down=1"}, paths, 0)
    assert "lxc.net.1.link" not in down


def test_limits_of_both_versions_of_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"memory": "256", "swap": "64", "cpulimit": "1.5"}
    monkeypatch.setattr(host, "cpus", lambda: 4)
    first, second = cgroups.limits(given, 1), cgroups.limits(given, 2)
    assert first["memory.limit_in_bytes"] == "268435456"
    assert first["memory.memsw.limit_in_bytes"] == str(320 * 2**20)
    assert (first["cpu.cfs_quota_us"], first["cpu.cfs_period_us"]) == ("30000", "20000")
    assert first["cpu.shares"] == "1024"
    assert (second["memory.max"], second["memory.swap.max"]) == ("268435456", str(64 * 2**20))
    assert (second["cpu.max"], second["cpu.weight"]) == ("30000 20000", "100")
    assert first["pids.max"] == second["pids.max"] == "4096"


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ({}, "-1"),
        ({"cores": "1"}, "20000"),
        ({"cores": "3", "cpulimit": "0.5"}, "10000"),
        ({"cores": "1", "cpulimit": "2"}, "20000"),
        ({"cores": "4"}, "-1"),  # all that there are
        ({"cores": "8"}, "-1"),
        ({"cpulimit": "0"}, "-1"),
    ],
)
def test_cores_are_time_on_any_processor(
    options: dict[str, str], quota: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "cpus", lambda: 4)
    assert cgroups.limits(options, 1)["cpu.cfs_quota_us"] == quota
    assert cgroups.limits(options, 2)["cpu.max"] == f"{'max' if quota == '-1' else quota} 20000"


def test_ids_that_nobody_else_was_given() -> None:
    other = [("alice", 100_000, 65_536), ("bob", 165_536, 65_536)]
    assert user_ids.choose([], []) == 100_000
    assert user_ids.choose(other, []) == 231_072
    assert user_ids.choose(other, [("carol", 231_072, 65_536)]) == 296_608
    root = ("root", 500_000, 65_536)
    assert user_ids.choose([*other, root], [root]) == 500_000
    assert user_ids.choose([*other, root], other) != 500_000, "only where both lists have it"


def test_an_instance_keeps_its_ids(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_ids, "choose", lambda *_: 700_000)
    assert user_ids.first(paths) == 700_000
    monkeypatch.setattr(user_ids, "choose", lambda *_: 800_000)
    assert user_ids.first(paths) == 700_000


def test_networks_as_ifupdown_reads_them() -> None:
    text = setup.interfaces({"net0": "name=eth0,ip=dhcp", "net1": NET, "net2": "name=eth2"})
    assert text == (
        "auto lo\niface lo inet loopback\n\n"
        "auto eth0\niface eth0 inet dhcp\n\n"
        "auto eth1\niface eth1 inet static\n\taddress 10.77.0.11/24\n\tgateway 10.77.0.1\n\n"
        "auto eth2\niface eth2 inet manual\n"
    )


def test_hosts_keep_what_is_the_container_s_own() -> None:
    given = {"hostname": "client", "searchdomain": "lab.example", "net1": NET}
    once = setup.hosts("127.0.0.1 localhost\n10.0.0.9 mine\n", given)
    assert once == (
        "127.0.0.1 localhost\n10.0.0.9 mine\n"
        "# --- BEGIN PVE ---\n10.77.0.11 client.lab.example client\n# --- END PVE ---\n"
    )
    assert setup.hosts(once, given) == once
    assert "127.0.1.1 b\n" in setup.hosts("", {"hostname": "b"})


def test_name_servers() -> None:
    given = {"searchdomain": "lab.example", "nameserver": "10.0.0.1 10.0.0.2"}
    assert setup.resolv_conf(given) == "search lab.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2"


def test_a_monitor_is_known_by_its_command_line(paths: Paths) -> None:
    folder = running.lxc_folder(paths)
    assert running._vmid_of([f"[lxc monitor] {folder} 100"], paths) == 100
    assert running._vmid_of(["/usr/bin/lxc-start", "-d", "-C", "-P", str(folder), "-n", "101"], paths) == 101
    for words in (
        [],
        ["[lxc monitor] /var/lib/lxc 100"],
        ["sleep", "infinity"],
        [f"[lxc monitor] {folder} x"],
    ):
        assert running._vmid_of(words, paths) is None


def test_two_instances_share_no_group(paths: Paths, tmp_path: Path) -> None:
    assert cgroups.folder(paths) != cgroups.folder(Paths(tmp_path / "other", paths.cache))


def test_changes_wait_only_until_they_are_taken_back() -> None:
    config = GuestConfig({"memory": "512", "hostname": "a"}, {"hostname": "x"}, kind=LXC)
    changes.stage(config, {"hostname": "b", "memory": "512"}, ["nameserver"], [])
    assert (config.pending, config.deleted) == ({"hostname": "b"}, [])
    changes.stage(config, {}, ["hostname"], [])
    assert (config.pending, config.deleted) == ({}, ["hostname"])
    changes.stage(config, {}, [], ["hostname"])
    assert (config.pending, config.deleted) == ({}, [])


@pytest.mark.parametrize(
    ("rootfs", "text"),
    [
        ("nosuch:1", "storage 'nosuch' does not exist"),
        ("local:1G", "unable to parse directory volume name '1G'"),
        ("/mnt/x", "Permission check failed (mount point type bind is only allowed for root@pam)"),
        ("1", "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."),
    ],
)
def test_a_tree_that_cannot_be_made(rootfs: str, text: str) -> None:
    with pytest.raises(ApiError) as refused:
        options.new_rootfs_bytes(rootfs)
    assert refused.value.reason == text


def test_the_size_of_a_tree() -> None:
    assert options.new_rootfs_bytes("local:4") == 4 * 2**30
    assert options.rootfs_text("local:100/vm-100-disk-0.raw", 2**30) == "local:100/vm-100-disk-0.raw,size=1G"
    assert options.rootfs_bytes({"rootfs": "local:100/vm-100-disk-0.raw,size=1536M"}) == 1536 * 2**20


def test_a_vmid_is_one_guest_s(tmp_path: Path) -> None:
    vms = GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve")
    containers = GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve", LXC)
    containers.create(121, "create")
    with pytest.raises(ApiError, match="CT 121 already exists on node 'pve'"):
        vms.create(121, "create")
    vms.create(122, "create")
    with pytest.raises(ApiError, match="VM 122 already exists on node 'pve'"):
        containers.create(122, "create")
    assert (vms.vmids(), containers.vmids()) == ([122], [121])
    with pytest.raises(ApiError, match=r"nodes/pve/lxc/122\.conf"):
        containers.load(122)


def test_trees_that_nobody_needs_go(paths: Paths) -> None:
    for name in ("aa-0", "bb-100000", "cc-0"):
        (paths.templates / name).mkdir(parents=True)
    for vmid, template in ((100, "aa-0"), (101, "bb-100000")):
        (paths.containers / str(vmid)).mkdir(parents=True)
        (paths.containers / str(vmid) / "template").write_text(template)
    rootfs.sweep(paths, lambda vmid: vmid == 100, [])
    assert [entry.name for entry in paths.containers.iterdir()] == ["100"]
    assert [entry.name for entry in paths.templates.iterdir()] == ["aa-0"]


def test_a_tree_whose_template_is_gone_says_so(paths: Paths) -> None:
    with pytest.raises(Exception, match="the files of CT 100 are missing"):
        rootfs.layers(100, paths)


def test_nothing_is_imported_from_a_stranger_s_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroot._thread, "is_inside", True, raising=False)
    with pytest.raises(ImportError, match="cannot be imported inside"):
        importlib.import_module("this_is_nowhere")
    monkeypatch.undo()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("this_is_nowhere")


def test_the_kernel_is_asked_for_more_only_when_it_takes_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "max_user_instances"
    monkeypatch.setattr(inotify, "LIMIT_FILE", file)
    file.write_text("128\n")
    assert inotify.ensure_limit(24) == "" and file.read_text() == "128\n"
    assert "raised from 128 to 65536" in inotify.ensure_limit(25) and file.read_text() == "65536"
    assert inotify.ensure_limit(500) == ""
    file.write_text("128\n")
    monkeypatch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with pytest.raises(MachineError, match=r"sysctl -w fs\.inotify\.max_user_instances=65536"):
        inotify.ensure_limit(50)
