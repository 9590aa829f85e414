"""What tasks do to whole VMs, broken off at their worst moments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from minipve.access.permit import Permit
from minipve.config.store import GuestConfig
from minipve.node import Node
from minipve.paths import Paths
from minipve.tasks import Task
from minipve.vm import lifecycle

QUIET = Task("", Path("/dev/null"))


class Killed(BaseException):
    """The endpoint's process is gone: nothing more is done, nothing cleaned up."""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(Paths(tmp_path / "state", tmp_path / "cache"))
    made.storage.create_directories()
    with made.access.change() as data:
        data["pools"]["lab"] = {"vms": [], "storage": []}
    made.vms.save(100, GuestConfig({"name": "source", "template": "1"}))
    return made


def clone(node: Node) -> None:
    node.vms.create(101, "clone")
    lifecycle.clone(node, QUIET, lifecycle.CloneRequest(100, 101, full=False, pool="lab"))


def create(node: Node) -> None:
    node.vms.create(101, "create")
    lifecycle.create(node, Permit(node.access, "root@pam"), QUIET, 101, {"memory": "32"}, "lab")


def destroy(node: Node) -> None:
    clone(node)
    lifecycle.destroy(node, QUIET, 101, skiplock=False, unreferenced=False)


@pytest.mark.parametrize("work", [clone, create, destroy])
@pytest.mark.parametrize("moment", range(12))
def test_killed_at_any_write_leaves_no_machine_outside_its_pool(
    node: Node, monkeypatch: pytest.MonkeyPatch, work: Callable[[Node], None], moment: int
) -> None:
    """Seen for real: killed between configuration and pool, its VMID was taken by nobody's machine."""
    writes = iter(range(100))

    def dies_before(do: Callable[..., object]) -> Callable[..., object]:
        def write(*given: object, **named: object) -> object:
            if next(writes) >= moment:
                raise Killed
            return do(*given, **named)

        return write

    with monkeypatch.context() as patch:
        for owner, name in ((node.vms, "save"), (node.vms, "remove"), (node.access, "change")):
            patch.setattr(owner, name, dies_before(getattr(owner, name)))
        with contextlib.suppress(Killed):
            work(node)
    again = Node(node.paths)
    lifecycle.recover(again)
    assert again.vms.exists(101) == (again.access.pool_of(101) == "lab")
