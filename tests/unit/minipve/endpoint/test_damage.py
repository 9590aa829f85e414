"""Damaged state files: each is reported, and everything else works."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from minipve.access.accounts import Access
from minipve.access.tickets import Tickets
from minipve.base import process
from minipve.base.atomic import UNFINISHED, sweep, write_atomic
from minipve.base.errors import ApiError, UserError
from minipve.base.paths import Paths
from minipve.config.store import GuestConfig, GuestStore
from minipve.endpoint import control
from minipve.guests import power
from minipve.guests.qemu import running
from minipve.network import interfaces
from minipve.node.tasks import Tasks

GARBAGE = b"\x00\xff\xfe not what it was"


@pytest.fixture
def store(tmp_path: Path) -> GuestStore:
    made = GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve")
    made.save(100, GuestConfig({"name": "sound", "memory": "64"}))
    return made


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (GARBAGE, "line 1"),
        (b"name: a\nmemory: 64\n\xff\n", "line 3"),
        (b"name: a\nno key here\n", "line 2"),
        (b"name: a\r\nmemory: 64\r\n", "line 1"),
        (b"name: a\nmemory: x\n", "line 2"),
        (b"net0: virtio,nonsense=1\n", "line 1"),
        (b"cores: two\n", "line 1"),
    ],
)
def test_damaged_configuration_affects_only_its_vm(
    store: GuestStore, text: bytes, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = store.directory / "101.conf"
    file.write_bytes(text)
    with pytest.raises(ApiError) as refused:
        store.load(101)
    assert refused.value.message == f"{file} is damaged ({where}): repair it, or remove the VM\n"
    for _ in range(2):
        assert [vmid for vmid, _ in store.all()] == [100]
    assert [record.message for record in caplog.records] == [refused.value.reason]
    assert store.vmids() == [100, 101], "nobody else gets its VMID"
    assert store.load_or_empty(101) == GuestConfig()


def test_folder_with_the_name_of_a_configuration(store: GuestStore) -> None:
    (store.directory / "101.conf").mkdir()
    assert [vmid for vmid, _ in store.all()] == [100]
    with pytest.raises(ApiError, match=r"101.conf is damaged \(Is a directory"):
        store.load(101)


def test_other_files_are_not_vms(store: GuestStore) -> None:
    for name in ("1abc.conf", "99.conf", "100.conf~", "1000000000.conf", "notes"):
        (store.directory / name).write_bytes(GARBAGE)
    assert store.vmids() == [100]
    assert [file.name for file in store.unknown_files()] == sorted(
        ["1abc.conf", "99.conf", "100.conf~", "1000000000.conf", "notes"]
    )


@pytest.mark.parametrize("text", [GARBAGE, b"", b"[]", b'{"users": {}, "roles": {}, "acl": [], "pools": {}}'])
def test_damaged_users_are_read_from_the_copy(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "access.json"
    with Access(file).change() as data:
        data["pools"]["lab"] = {"vms": [100], "storage": []}
    file.write_bytes(text)
    again = Access(file)
    assert again.data["pools"] == {"lab": {"vms": [100], "storage": []}}
    assert [f"{file} is damaged" in r.message and "copy is used" in r.message for r in caplog.records] == [
        True
    ]
    with again.change() as data:
        data["pools"]["lab"]["vms"].append(101)
    assert Access(file).data["pools"]["lab"]["vms"] == [100, 101]


def test_damaged_users_and_copy_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    with Access(file).change() as data:
        data["pools"]["lab"] = {"vms": [], "storage": []}
    for place in tmp_path.iterdir():
        place.write_bytes(GARBAGE)
    with pytest.raises(UserError, match=r"access\.json is damaged"):
        Access(file)


def test_damaged_key_is_replaced(tmp_path: Path) -> None:
    access, key = Access(tmp_path / "access.json"), tmp_path / "authkey"
    key.write_bytes(b"not hex")
    ticket, _ = Tickets(access, key).issue("root@pam", time.time())
    assert Tickets(access, key).user_of(ticket) == "root@pam"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (GARBAGE, "not text"),
        (b"auto lo\niface\n", "line 2: iface without a name"),
        (b"iface vmbr0 inet static\n\taddress 10.0.0.1/99\n", "line 2: '10.0.0.1/99' does not"),
        (b"iface vmbr0 inet static\n\tmtu many\n", "line 2: strange MTU"),
    ],
)
def test_damaged_interfaces_file_names_the_line(tmp_path: Path, text: bytes, where: str) -> None:
    file = tmp_path / "interfaces"
    file.write_bytes(text)
    with pytest.raises(UserError, match=f"interfaces is damaged: .*{where}"):
        interfaces.load(file)


def test_other_files_are_not_tasks(tmp_path: Path) -> None:
    sound = "UPID:pve:00000001:00000002:60000000:qmstart:100:root@pam:"
    torn = "UPID:pve:00000001:00000003:60000000:qmstart:100:root@pam:"
    (tmp_path / sound).write_text("TASK OK\n")
    (tmp_path / torn).write_bytes(GARBAGE)
    (tmp_path / "UPID:garbage").write_bytes(GARBAGE)
    (tmp_path / "index").mkdir()
    tasks = Tasks(tmp_path, "pve")
    assert {row["upid"]: row["status"] for row in tasks.overview()} == {
        sound: "OK",
        torn: "unexpected status",
    }
    assert tasks.log(torn, 0, 0)[1] == 1


def test_task_logs_are_split_at_line_feeds_only(tmp_path: Path) -> None:
    name = "UPID:pve:00000001:00000002:60000000:qmstart:100:root@pam:"
    (tmp_path / name).write_bytes("a\u2028b\x0bc\r\nTASK OK\n".encode())
    assert [row["t"] for row in Tasks(tmp_path, "pve").log(name, 0, 0)[0]] == ["a\u2028b\x0bc\r", "TASK OK"]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[Paths, int]]:
    """A process with the command line of a machine's QEMU, its pid file and its monitor's socket."""
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    paths.run.mkdir(parents=True)
    words = ["-pidfile", str(paths.runtime(100, "pid"))]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *words])
    while not process.command(child.pid):  # for a moment the kernel tells none
        time.sleep(0.01)
    paths.runtime(100, "pid").write_text(f"{child.pid}\n")
    paths.runtime(100, "qmp").touch()
    yield paths, child.pid
    child.kill()
    child.wait()


@pytest.mark.parametrize("text", [b"", GARBAGE, b"1\n", b"999999999\n", None])
def test_running_machine_is_detected_without_its_pid_file(
    machine: tuple[Paths, int], text: bytes | None
) -> None:
    """``stop --purge`` relies on this. Otherwise it would remove the disks of a running machine."""
    paths, pid = machine
    file = paths.runtime(100, "pid")
    file.unlink() if text is None else file.write_bytes(text)
    assert running.running_pid(100, paths) == pid
    assert power.machines(paths) == {100: pid}


def test_damaged_endpoint_json_is_empty(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path)
    for text in (GARBAGE, b"[]", b"{}", b"3"):
        paths.endpoint_file.write_bytes(text)
        assert control.facts(paths) == {}
    (tmp_path / "accel.json").write_bytes(GARBAGE)
    assert running._cached(tmp_path / "accel.json") == {}


def test_unfinished_files_are_swept(tmp_path: Path) -> None:
    write_atomic(tmp_path / "deep" / "kept", "text")
    (tmp_path / "deep" / f"{UNFINISHED}seed-1").mkdir()
    (tmp_path / "deep" / f"{UNFINISHED}seed-1" / "user-data").write_text("a password's hash")
    (tmp_path / f"{UNFINISHED}link").symlink_to(tmp_path / "deep")
    sweep(tmp_path)
    assert [file.name for file in tmp_path.rglob("*")] == ["deep", "kept"]
