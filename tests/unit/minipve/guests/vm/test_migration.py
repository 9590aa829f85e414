"""Migration of stopped VMs between nodes, and what an interruption leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import ApiError
from minipve.base.paths import Paths
from minipve.config.store import GuestConfig
from minipve.guests.vm import lifecycle, migration
from minipve.node.node import Node
from minipve.node.tasks import Task

DISKS = ("local:100/vm-100-disk-0.qcow2", "local:100/vm-100-disk-1.qcow2")
OPTIONS = {"name": "m", "scsi0": f"{DISKS[0]},size=1M", "unused0": DISKS[1]}


class Killed(BaseException):
    """The end of the process, which no code catches."""


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    first = Node(paths)
    second = Node(paths.of_node("pve2"), "pve2", first)
    for node in (first, second):
        node.storage.create_directories()
        node.paths.interfaces.parent.mkdir(parents=True)
        node.paths.interfaces.touch()
    for volid in DISKS:
        file = first.storage.path(volid)
        file.parent.mkdir(exist_ok=True)
        file.write_text(volid)
    first.vms.save(100, GuestConfig(dict(OPTIONS), snapshots={"one": {"scsi0": OPTIONS["scsi0"]}}))
    return first, second


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task("", tmp_path / "task")


def is_whole(node: Node) -> bool:
    """Return whether the VM is on this node only, unlocked, with both disks."""
    others = [other for other in node.nodes.values() if other is not node]
    return (
        node.vms.load(100).options == OPTIONS
        and [node.storage.path(volid).read_text() for volid in DISKS] == list(DISKS)
        and not any(other.vms.exists(100) for other in others)
        and not any(other.storage.of_vm(100) for other in others)
        and not any(each.vms.journal.vmids() for each in node.nodes.values())
    )


def test_vm_moves_there_and_back(nodes: tuple[Node, Node], task: Task) -> None:
    first, second = nodes
    migration.migrate(first, second, task, 100)
    assert is_whole(second)
    assert second.vms.load(100).snapshots == {"one": {"scsi0": OPTIONS["scsi0"]}}
    migration.migrate(second, first, task, 100)
    assert is_whole(first)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Killed()])
def test_failure_leaves_the_vm_where_it_was(
    nodes: tuple[Node, Node], task: Task, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    first, second = nodes
    rename = migration._rename

    def fail(source: Node, target: Node, volid: str) -> None:
        if volid == DISKS[1] and target is second:
            raise error
        rename(source, target, volid)

    monkeypatch.setattr(migration, "_rename", fail)
    with pytest.raises((ApiError, Killed)):
        migration.migrate(first, second, task, 100)
    assert is_whole(first)


@pytest.mark.parametrize("last_step", ["begin_work", "_rename", "move"])
def test_killed_endpoint_is_recovered(
    nodes: tuple[Node, Node], task: Task, monkeypatch: pytest.MonkeyPatch, last_step: str
) -> None:
    """The process ends right after a step; the next one finds whole VMs, on one of the nodes."""
    first, second = nodes

    def ends(step: object) -> object:
        def run(*arguments: object) -> None:
            step(*arguments)
            raise Killed

        return run

    with monkeypatch.context() as patch:
        patch.setattr(migration, "_gather", lambda *_: None)  # a killed process cleans up nothing
        owner = migration if last_step == "_rename" else first.vms
        patch.setattr(owner, last_step, ends(getattr(owner, last_step)))
        with pytest.raises(Killed):
            migration.migrate(first, second, task, 100)
    for node in nodes:
        lifecycle.recover(node)
    for node in nodes:
        migration.recover(node)
    assert is_whole(second if last_step == "move" else first)


def test_volumes_that_must_stay_are_named(nodes: tuple[Node, Node], task: Task) -> None:
    first, second = nodes
    base = "local:900/base-900-disk-0.qcow2"
    linked = "local:900/base-900-disk-0.qcow2/100/vm-100-disk-2.qcow2"
    with first.vms.changing(100) as config:
        config.options |= {"scsi1": linked, "ide2": "local:iso/x.iso,media=cdrom"}
    with pytest.raises(ApiError, match="migration aborted"):
        migration.migrate(first, second, task, 100)
    log = task.file.read_text()
    assert f"can't migrate local disk '{linked}': clone of '{base}'" in log
    assert "can't migrate local disk 'local:iso/x.iso': local cdrom image" in log
    assert first.storage.path(DISKS[0]).exists()
    assert "lock" not in first.vms.load(100).options


def test_existing_file_on_the_target_is_not_overwritten(nodes: tuple[Node, Node], task: Task) -> None:
    first, second = nodes
    other = second.storage.path(DISKS[0])
    other.parent.mkdir()
    other.write_text("other")
    with pytest.raises(ApiError, match="migration aborted"):
        migration.migrate(first, second, task, 100)
    assert other.read_text() == "other"
    assert first.storage.path(DISKS[0]).read_text() == DISKS[0]


def test_locked_vm_stays(nodes: tuple[Node, Node], task: Task) -> None:
    first, second = nodes
    with first.vms.changing(100) as config:
        config.options["lock"] = "backup"
    with pytest.raises(ApiError, match="migration aborted"):
        migration.migrate(first, second, task, 100)
    assert first.vms.load(100).options["lock"] == "backup"


def test_lock_that_root_has_set_is_not_recovered(nodes: tuple[Node, Node]) -> None:
    first, _ = nodes
    with first.vms.changing(100) as config:
        config.options["lock"] = migration.LOCK
    migration.recover(first)
    assert first.vms.load(100).options["lock"] == migration.LOCK
