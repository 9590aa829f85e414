"""A cluster of two nodes, of which one is off: without quorum, everything can be read and nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.conftest import minipve
from tests.contract.endpoint import Endpoint, refused

NO_QUORUM = (500, "cluster not ready - no quorum?")


@pytest.fixture(scope="module")
def pair(lxc: None, start: Callable[..., Endpoint]) -> Iterator[Endpoint]:
    """Yield an instance of two nodes, of which the second one is off."""
    endpoint = start("--nodes", "2")
    root = endpoint.root()
    endpoint.done(root.nodes("pve").qemu.post(vmid=100, memory=32, kvm=0), root)
    assert endpoint.state is not None
    assert minipve("node", "pve2", "off", state=endpoint.state).returncode == 0
    yield endpoint


CHANGES: dict[str, Callable[[Any], Any]] = {
    "create a VM": lambda root: root.nodes("pve").qemu.post(vmid=101, memory=32),
    "change a VM": lambda root: root.nodes("pve").qemu(100).config.put(memory=48),
    "start a VM": lambda root: root.nodes("pve").qemu(100).status.start.post(),
    "remove a VM": lambda root: root.nodes("pve").qemu(100).delete(),
    "create a pool": lambda root: root.pools.post(poolid="late"),
    "create a user": lambda root: root.access.users.post(userid="late@pve"),
    "create a zone": lambda root: root.cluster.sdn.zones.post(zone="late", type="simple"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_nothing_changes_without_quorum(pair: Endpoint, change: Callable[[Any], Any]) -> None:
    error = refused(change, pair.root())  # which logs in, and that works
    assert (error.status_code, error.content) == NO_QUORUM


def test_all_answers_agree_that_there_is_no_quorum(pair: Endpoint) -> None:
    ha = pair.root().cluster.ha.status
    assert pair.root().cluster.status.get()[0]["quorate"] == 0
    status = {"id": "quorum", "type": "quorum", "node": "pve", "quorate": 0}
    assert ha.current.get() == [status | {"status": "No quorum on node 'pve'!"}]
    assert ha.manager_status.get()["quorum"] == {"node": "pve", "quorate": 0}


def test_quorum_returns_with_the_node(pair: Endpoint) -> None:
    assert pair.state is not None
    assert minipve("node", "pve2", "on", state=pair.state).returncode == 0
    pair.root().pools.post(poolid="late")
    assert pair.root().cluster.ha.status.current.get()[0]["status"] == "OK"
