"""Containers while the endpoint is killed or the disk is full; hostile archives, other labs' tokens."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.contract.lab import tiny
from tests.contract.minipve.test_containers import (
    NET,
    create,
    ct,
    groups,
    inside,
    link,
    rate_of,
    traces,
    upload,
)
from tests.waiting import PATIENCE_S


@pytest.fixture
def node(own: Endpoint, lxc: None) -> Endpoint:
    upload(own, "tiny.tar.gz", tiny.template())
    return own


def kill_endpoint(endpoint: Endpoint) -> Endpoint:
    """Kill the endpoint with SIGKILL and start it again."""
    assert endpoint.state is not None
    pid = int((endpoint.state / "run/endpoint.lock").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)
    return serve(endpoint.state)


def test_containers_survive_a_killed_endpoint(node: Endpoint) -> None:
    create(node, 300, net0=NET.format(11) + ",rate=1")
    node.done(ct(node, 300).status.start.post())
    before = ct(node, 300).status.current.get()
    again = kill_endpoint(node)
    after = ct(again, 300).status.current.get()
    assert (after["status"], after["pid"]) == ("running", before["pid"])
    assert "8388Kbit" in rate_of(again, "veth300i0")
    ct(again, 300).config.put(net0=NET.format(11) + ",rate=2")
    assert "16777Kbit" in rate_of(again, "veth300i0")
    assert inside(ct(again, 300), "cat /etc/debian_version") == "12"
    again.done(ct(again, 300).delete(force=1))
    assert traces(again, 300) == []


@pytest.mark.parametrize("log_line", ["Formatting", "extracting", "Detected", "TASK OK"])
def test_endpoint_killed_during_creation(node: Endpoint, log_line: str) -> None:
    assert node.state is not None
    api = node.api().nodes("pve").lxc
    upid = api.post(
        vmid=300, ostemplate="local:vztmpl/tiny.tar.gz", rootfs="local:1", pool=node.pool, start=1
    )
    log, deadline = node.state / "log/tasks" / upid, time.monotonic() + PATIENCE_S
    while log_line not in log.read_text():
        assert time.monotonic() < deadline
    again = kill_endpoint(node)
    rows = again.api().nodes("pve").lxc.get()
    if rows == []:
        assert traces(again, 300) == [] and again.state is not None
        assert list((again.state / "templates").glob(".tmp*")) == []
        create(again, 300)
    again.done(ct(again, 300).delete(force=1))
    assert traces(again, 300) == []


def test_endpoint_killed_during_start_and_removal(node: Endpoint) -> None:
    create(node, 300, net0=NET.format(11) + ",rate=1")
    for pause in (0.0, 0.02, 0.05, 0.1):
        ct(node, 300).status.start.post()
        time.sleep(pause)
        node = kill_endpoint(node)
        if ct(node, 300).status.current.get()["status"] == "running":
            node.done(ct(node, 300).status.stop.post())
        assert groups(node, 300) == [] and link(node, "veth300i0") == {}
    node.done(ct(node, 300).status.start.post())
    ct(node, 300).delete(force=1)
    node = kill_endpoint(node)
    deadline = time.monotonic() + PATIENCE_S
    while traces(node, 300) and node.api().nodes("pve").lxc.get() == []:
        assert time.monotonic() < deadline, traces(node, 300)
        time.sleep(0.05)


def test_state_folder_with_a_long_path(lxc: None, tmp_path: Path) -> None:
    """The kernel limits the path of a socket to 107 bytes."""
    state = tmp_path / ("a long name " * 10) / "state"
    node = serve(state)
    try:
        upload(node, "tiny.tar.gz", tiny.template())
        create(node, 300, net0=NET.format(11))
        node.done(ct(node, 300).status.start.post())
        assert inside(ct(node, 300), "cat /etc/debian_version") == "12"
        node.done(ct(node, 300).delete(force=1))
        assert traces(node, 300) == []
    finally:
        assert minipve("stop", "--purge", state=state).returncode == 0


def test_container_ends_with_its_monitor(node: Endpoint) -> None:
    assert node.state is not None
    create(node, 300, net0=NET.format(11))
    node.done(ct(node, 300).status.start.post())
    pid = ct(node, 300).status.current.get()["pid"]
    os.kill(int((node.state / "run/300.monitor").read_text()), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/root/etc").exists() or groups(node, 300) or link(node, "veth300i0"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    node.done(ct(node, 300).status.start.post())


def test_purge_removes_running_containers(node: Endpoint) -> None:
    assert node.state is not None
    create(node, 300, net0=NET.format(11) + ",rate=1")
    node.done(ct(node, 300).status.start.post())
    pid = ct(node, 300).status.current.get()["pid"]
    assert minipve("stop", "--purge", state=node.state).stdout == "stopped\n"
    assert not Path(f"/proc/{pid}").exists() and groups(node, 300) == [] and not node.state.exists()
    assert str(node.state) not in Path("/proc/mounts").read_text()
    serve(node.state)


def test_stop_keeps_the_files_of_containers(node: Endpoint) -> None:
    assert node.state is not None
    create(node, 300, hostname="kept")
    node.done(ct(node, 300).status.start.post())
    inside(ct(node, 300), "echo mine >/root/note")
    assert minipve("stop", state=node.state).returncode == 0
    assert groups(node, 300) == []
    again = serve(node.state)
    assert ct(again, 300).status.current.get()["status"] == "stopped"
    again.done(ct(again, 300).status.start.post())
    assert inside(ct(again, 300), "cat /root/note") == "mine"


def test_full_disk_is_an_error_and_leaves_nothing(lxc: None, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40M", "tmpfs", tmp_path]).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        full = serve(tmp_path)
        upload(full, "tiny.tar.gz", tiny.template())
        free = shutil.disk_usage(tmp_path).free
        (tmp_path / "filler").write_bytes(b"\1" * (free - 2**20))
        api = full.api().nodes("pve").lxc
        params = {"ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1", "pool": full.pool}
        error = full.failed(api.post(vmid=300, **params))
        assert "No space left on device" in error, error
        assert api.get() == [] and traces(full, 300) == []
        assert list((tmp_path / "templates").iterdir()) == []
        (tmp_path / "filler").unlink()
        create(full, 300)
        full.done(ct(full, 300).status.start.post())
    finally:
        stopped = minipve("stop", state=tmp_path).returncode
        subprocess.run(["umount", tmp_path], check=True)
    assert stopped == 0


def hostile(*more: dict[str, Any], whole: bool = True) -> bytes:
    """Return a template with more entries, or (unless ``whole``) an archive of only these."""
    stream = io.BytesIO(tiny.template())
    archive = io.BytesIO()
    with tarfile.open(fileobj=stream) as old, tarfile.open(fileobj=archive, mode="w:gz") as new:
        for entry in old if whole else ():
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
        for entry in (tiny.member(**attributes) for attributes in more):
            new.addfile(entry, io.BytesIO(b"x" * entry.size) if entry.isfile() else None)
    return archive.getvalue()


LINK = {"name": "./link", "type": tarfile.SYMTYPE, "mode": 0o777}
HOSTILE: dict[str, list[dict[str, Any]]] = {
    "up": [{"name": "../../escaped", "size": 1}],
    "absolute": [{"name": "/tmp/dasklab-escaped", "size": 1}],
    "device": [{"name": "./disk", "type": tarfile.BLKTYPE, "devmajor": 254, "devminor": 0, "mode": 0o666}],
    "hard link": [{"name": "./shadow", "type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}],
    "through a link": [LINK | {"linkname": "/tmp"}, {"name": "./link/dasklab-escaped", "size": 1}],
    "through a link up": [LINK | {"linkname": "../.."}, {"name": "./link/escaped", "size": 1}],
    "over a hard-linked link": [
        LINK | {"linkname": "/tmp/dasklab-escaped"},
        {"name": "./hard", "type": tarfile.LNKTYPE, "linkname": "./link"},
        {"name": "./hard", "size": 1},
    ],
}


@pytest.fixture
def lasting(own_for_all: Endpoint, lxc: None) -> Iterator[Endpoint]:
    """An endpoint for several tests; container 300 is removed after each."""
    yield own_for_all
    root = own_for_all.root()
    if root.nodes("pve").lxc.get():
        own_for_all.done(root.nodes("pve").lxc(300).delete(force=1), root)


@pytest.mark.parametrize("how", list(HOSTILE))
@pytest.mark.parametrize("unprivileged", [1, 0])
def test_hostile_archive_cannot_leave_its_folder(lasting: Endpoint, how: str, unprivileged: int) -> None:
    node, root = lasting, lasting.root()
    assert node.state is not None
    templates_before = set(node.state.glob("templates/*"))
    upload(node, "evil.tar.gz", hostile(*HOSTILE[how]))
    upid = root.nodes("pve").lxc.post(
        vmid=300, ostemplate="local:vztmpl/evil.tar.gz", rootfs="local:1", unprivileged=unprivileged
    )
    status = node.wait(upid, root)["exitstatus"]
    assert list(node.state.rglob("escaped")) == [] and not Path("/tmp/dasklab-escaped").exists()
    if status != "OK":
        assert traces(node, 300) == [] and set(node.state.glob("templates/*")) == templates_before
        return
    node.done(root.nodes("pve").lxc(300).status.start.post(), root)
    output = inside(root.nodes("pve").lxc(300), "cat /disk /shadow 2>&1 | head -c 100")
    assert "root:" not in output and ("disk" not in how or "denied" in output)


@pytest.mark.parametrize("place", ["etc/hostname", "etc/network", "etc/hosts", "etc/resolv.conf"])
def test_links_in_a_container_are_not_followed(lasting: Endpoint, place: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "interfaces").write_text("mine\n")
    link_to = str(target if place == "etc/network" else target / "interfaces")
    node, root = lasting, lasting.root()
    upload(node, "evil.tar.gz", hostile(LINK | {"name": f"./{place}", "linkname": link_to}))
    upid = root.nodes("pve").lxc.post(
        vmid=300, ostemplate="local:vztmpl/evil.tar.gz", rootfs="local:1", nameserver="10.0.0.1"
    )
    node.wait(upid, root)
    if node.api() and root.nodes("pve").lxc.get():
        node.wait(root.nodes("pve").lxc(300).status.start.post(), root)
    assert (target / "interfaces").read_text() == "mine\n" and len(list(target.iterdir())) == 1


def refusal(node: Endpoint, name: str, archive: bytes, rootfs: str = "local:1") -> str:
    """Return the error of a container whose template is ``archive``. Nothing of it may stay."""
    assert node.state is not None
    templates = set(node.state.glob("templates/*"))
    volume, root = upload(node, name, archive), node.root()
    error = node.failed(root.nodes("pve").lxc.post(vmid=300, ostemplate=volume, rootfs=rootfs), root)
    assert traces(node, 300) == [] and set(node.state.glob("templates/*")) == templates
    node.done(root.nodes("pve").storage("local").content(volume).delete(), root)
    return error


def test_link_to_a_folder_of_the_host_is_no_system(lasting: Endpoint) -> None:
    archive = hostile(LINK | {"name": "./etc", "linkname": "/etc"}, whole=False)
    assert "unable to detect OS distribution" in refusal(lasting, "evil.tar.gz", archive)


@pytest.mark.parametrize(("end", "command"), [(".gz", "gzip"), (".xz", "xz"), (".zst", "zstd"), ("", "cat")])
def test_template_is_no_larger_than_the_root_file_system(lasting: Endpoint, end: str, command: str) -> None:
    bomb = gzip.decompress(hostile({"name": "./bomb", "size": 12 * 2**20}))
    archive = subprocess.run([command], input=bomb, capture_output=True, check=True).stdout
    error = refusal(lasting, f"bomb.tar{end}", archive, "local:0.0078125")
    assert error == "unable to create CT 300 - the template does not fit into the root file system of 8M"


def test_memory_of_tar_is_bounded(lasting: Endpoint) -> None:
    """Tar keeps a long name in memory. The header says how long it is."""
    header = tiny.member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME, size=2**32)
    archive = header.tobuf(tarfile.GNU_FORMAT).ljust(2**20, b"a")
    assert "memory exhausted" in refusal(lasting, "long.tar", archive)


def test_folders_may_be_deeper_than_recursion_goes(node: Endpoint) -> None:
    """A thousand levels, by an archive or a guest, once kept an endpoint from starting again."""
    assert node.state is not None
    deep = "a/" * 1500
    folders = [{"name": f"./{top}{deep}", "type": tarfile.DIRTYPE, "mode": 0o755} for top in ("", "usr/lib/")]
    volume = upload(node, "deep.tar.gz", hostile(*folders))
    create(node, 300, ostemplate=volume)
    node.done(ct(node, 300).status.start.post())
    inside(ct(node, 300), f"mkdir -p /root/{deep}; set -- /sys/fs/cgroup/*/; mkdir -p $1{deep}")
    assert ct(node, 300).status.current.get()["disk"] > 0
    node.done(node.root().nodes("pve").storage("local").content(volume).delete(), node.root())
    assert minipve("stop", state=node.state).returncode == 0
    again = serve(node.state)
    again.done(ct(again, 300).delete())
    assert groups(again, 300) == [] and not (again.state / "containers/300").exists()
    assert minipve("stop", state=node.state).returncode == 0
    serve(node.state)
    assert list((node.state / "templates").iterdir()) == []


def test_only_one_of_many_guests_gets_a_vmid(node: Endpoint) -> None:
    bodies = {"lxc": {"ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1"}, "qemu": {"memory": 32}}

    def post(kind: str) -> Any:
        return node.request(
            "POST", f"/nodes/pve/{kind}", data=bodies[kind] | {"vmid": 300, "pool": node.pool}
        )

    with ThreadPoolExecutor(50) as senders:
        answers = list(senders.map(post, ["lxc", "qemu"] * 25))
    upids = [answer.json()["data"] for answer in answers if answer.status_code == 200]
    assert len(upids) == 1 and node.wait(upids[0])["exitstatus"] == "OK"
    assert all("already exists on node" in answer.reason for answer in answers if answer.status_code != 200)
    guests = [*node.api().nodes("pve").lxc.get(), *node.api().nodes("pve").qemu.get()]
    assert [guest["vmid"] for guest in guests] == [300]


@pytest.mark.parametrize("pause_s", [0.0, 0.03, 0.1])
def test_container_destroyed_while_it_starts_leaves_nothing(node: Endpoint, pause_s: float) -> None:
    create(node, 300, net0=NET.format(11) + ",rate=1")
    upid = ct(node, 300).status.start.post()
    time.sleep(pause_s)
    node.done(node.root().nodes("pve").lxc(300).delete(force=1), node.root())
    node.wait(upid, node.root())
    assert traces(node, 300) == [] and node.api().nodes("pve").lxc.get() == []


@pytest.fixture
def theirs(node: Endpoint) -> Iterator[str]:
    """Create another lab's container in its own pool, and return its volume."""
    root = node.root()
    root.pools.post(poolid="other")
    upid = root.nodes("pve").lxc.post(
        vmid=400, ostemplate="local:vztmpl/tiny.tar.gz", rootfs="local:1", pool="other"
    )
    node.done(upid, root)
    yield "local:400/vm-400-disk-0.raw"


def test_token_cannot_reach_other_pools_containers(node: Endpoint, theirs: str) -> None:
    api, other = node.api().nodes("pve"), ct(node, 400)
    params = {"ostemplate": "local:vztmpl/tiny.tar.gz", "pool": node.pool}
    for call, options in (
        (api.lxc.post, {"vmid": 300, "rootfs": theirs} | params),
        (api.lxc.post, {"vmid": 300, "rootfs": f"{theirs},size=1G"} | params),
        (api.lxc.post, {"vmid": 300, "ostemplate": theirs, "rootfs": "local:1", "pool": node.pool}),
        (api.qemu.post, {"vmid": 300, "scsi0": f"local:0,import-from={theirs}", "pool": node.pool}),
        (api.qemu.post, {"vmid": 300, "scsi0": theirs, "pool": node.pool}),
        (api.storage("local").content(theirs).delete, {}),
        (other.config.get, {}),
        (other.config.put, {"hostname": "mine"}),
        (other.status.start.post, {}),
        (other.clone.post, {"newid": 300, "pool": node.pool}),
        (other.interfaces.get, {}),
        (other.delete, {}),
    ):
        assert refused(call, **options).status_code in (400, 403, 500), options
    assert api.lxc.get() == [] and api.qemu.get() == []
    create(node, 300)
    assert refused(ct(node, 300).config.put, rootfs=theirs).status_code in (403, 500)
    assert "300" in ct(node, 300).config.get()["rootfs"]


def test_tags_at_creation_need_a_privilege_on_the_container(node: Endpoint) -> None:
    api = node.api().nodes("pve").lxc
    params = {"ostemplate": "local:vztmpl/tiny.tar.gz", "rootfs": "local:1", "pool": node.pool}
    assert "VM.Config.Options" in refused(api.post, vmid=300, tags="dasklab", **params).content
    assert refused(api.post, vmid=300, unprivileged=0, **params).content.endswith("(/, Sys.Modify)")
    create(node, 300)
    ct(node, 300).config.put(tags="dasklab")
    root = node.root()
    root.access.acl.put(path="/vms/300", users=node.user, roles="PVEVMAdmin")
    node.done(ct(node, 300).delete())
    assert [row for row in root.access.acl.get() if row["path"] == "/vms/300"] == []
    assert root.pools.get(poolid=node.pool)[0]["members"] == []


def test_other_processes_are_not_taken_for_a_monitor(node: Endpoint) -> None:
    """The node identifies LXC's monitors by their command line, which any process can imitate."""
    assert node.state is not None
    create(node, 300)
    create(node, 301)
    node.done(ct(node, 300).status.start.post())
    title = (Path("/proc") / (node.state / "run/300.monitor").read_text().strip() / "cmdline").read_text()
    fake = title.strip("\0").replace(" 300", " 301")
    imitation = ["bash", "-c", 'sleep 3 & exec -a "$0" cat', fake]
    strangers = {
        "another user's": (imitation, 65534),
        "a container's": (["unshare", "-p", "-f", *imitation], 0),
    }
    for whose, (words, user) in strangers.items():
        with subprocess.Popen(words, user=user, stdin=subprocess.PIPE) as child:  # it ends with its input
            time.sleep(0.2)
            (node.state / "run/301.monitor").write_text(
                "1"
            )  # damaged, so that the node searches all processes
            assert ct(node, 301).status.current.get()["status"] == "stopped", whose
            assert child.poll() is None


RIGHTS = (
    *("Allocate", "Config.CPU", "Config.Memory", "Config.Disk", "Config.Network", "Config.Options"),
    *("PowerMgmt", "Audit"),
)
"""The privileges on its pool that a token needs to create and run a container, measured on Proxmox VE."""


@pytest.mark.parametrize("lacking", ["", *RIGHTS])
def test_each_privilege_is_necessary(rights: tuple[Endpoint, Any], lacking: str) -> None:
    node, allow = rights
    allow([f"VM.{right}" for right in RIGHTS if right != lacking])
    params = {"memory": 64, "cores": 1, "rootfs": "local:1", "net0": "name=eth0,bridge=vmbr0", "onboot": 0}
    answer = ask(node, "POST", "lxc", vmid=300, ostemplate="local:vztmpl/tiny.tar.gz", pool="few", **params)
    needed = {"Allocate", "Config.CPU", "Config.Memory", "Config.Disk", "Config.Network", "Config.Options"}
    assert answer.status_code == (403 if lacking in needed else 200), answer.text
    if answer.status_code != 200:
        return
    node.done(answer.json()["data"], node.root())
    try:
        assert ask(node, "GET", "lxc/300/config").status_code == (403 if lacking == "Audit" else 200)
        started = ask(node, "POST", "lxc/300/status/start")
        assert started.status_code == (403 if lacking == "PowerMgmt" else 200)
        if started.status_code == 200:
            node.wait(started.json()["data"], node.root())
    finally:
        node.done(node.root().nodes("pve").lxc(300).delete(force=1), node.root())


FEW: dict[str, str] = {}
"""The HTTP header with the token of few privileges."""


def ask(node: Endpoint, method: str, path: str, **data: Any) -> Any:
    """Send a request with the token of few privileges."""
    return node.request(method, f"/nodes/pve/{path}", FEW, data=data)


@pytest.fixture(scope="module")
def rights(own_for_all: Endpoint, lxc: None) -> tuple[Endpoint, Any]:
    """A user with a pool, and a function that sets the privileges on it."""
    upload(own_for_all, "tiny.tar.gz", tiny.template())
    root = own_for_all.root()
    root.access.users.post(userid="few@pve")
    secret = root.access.users("few@pve").token("few").post(privsep=0)["value"]
    FEW["Authorization"] = f"PVEAPIToken=few@pve!few={secret}"
    root.pools.post(poolid="few")
    privileges_elsewhere = {
        "/storage/local": "Datastore.AllocateSpace",
        "/sdn/zones/localnetwork/vmbr0": "SDN.Use",
    }
    for number, (path, privilege) in enumerate(privileges_elsewhere.items()):
        root.access.roles.post(roleid=f"Few{number}", privs=privilege)
        root.access.acl.put(path=path, roles=f"Few{number}", users="few@pve")
    root.access.roles.post(roleid="Few", privs="")
    root.access.acl.put(path="/pool/few", roles="Few", users="few@pve")

    def allow(privileges: list[str]) -> None:
        root.access.roles("Few").put(privs=",".join(privileges))

    return own_for_all, allow
