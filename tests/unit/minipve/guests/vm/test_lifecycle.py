"""Create, clone and destroy VMs while the endpoint is killed at every possible moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from minipve.access.permissions import Permit
from minipve.base.paths import Paths
from minipve.config.store import GuestConfig
from minipve.guests.vm import lifecycle
from minipve.node.node import Node
from minipve.node.tasks import Task

QUIET = Task("", Path("/dev/null"))


class Killed(BaseException):
    """The endpoint was killed: no code runs any more, not even to clean up."""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(Paths(tmp_path / "state", tmp_path / "cache"))
    node.storage.create_directories()
    with node.access.change() as data:
        data["pools"]["lab"] = {"vms": [], "storage": []}
    node.vms.save(100, GuestConfig({"name": "source", "template": "1"}))
    return node


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
def test_kill_at_any_write_leaves_no_vm_outside_its_pool(
    node: Node, monkeypatch: pytest.MonkeyPatch, work: Callable[[Node], None], moment: int
) -> None:
    """A VM that is in no pool would occupy its VMID, and its owner could not see it."""
    writes = iter(range(100))

    def killed_at_moment(do: Callable[..., object]) -> Callable[..., object]:
        def write(*args: object, **kwargs: object) -> object:
            if next(writes) >= moment:
                raise Killed
            return do(*args, **kwargs)

        return write

    with monkeypatch.context() as patch:
        for owner, name in ((node.vms, "save"), (node.vms, "remove"), (node.access, "change")):
            patch.setattr(owner, name, killed_at_moment(getattr(owner, name)))
        with contextlib.suppress(Killed):
            work(node)
    restarted = Node(node.paths)
    lifecycle.recover(restarted)
    assert restarted.vms.exists(101) == (restarted.access.pool_of(101) == "lab")
