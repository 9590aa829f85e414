"""Provision a lab on minipve, with a client that is interrupted after any of its calls.

The machines have an empty disk: QEMU runs them, but nothing boots.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Change
from dasklab.machines.endpoint.privileges import ROLES, needed
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.endpoint import Endpoint as Client
from dasklab.machines.inventory.topology import Lab
from dasklab.machines.plan import provision as module
from dasklab.machines.plan.provision import Request, provision

from tests.contract.conftest import POOL
from tests.contract.endpoint import Endpoint

UP = 9  # calls that create a lab of one machine: bridge 2, image, template 3, machine 3
DOWN = 6  # calls that remove it: stop, machine, template, bridge 2, image
FIRST = 9100


class ClientKilledError(Exception):
    """The client was killed; the task that it started goes on."""


class InterruptedPve(Pve):
    """A client that is killed once it has sent ``after`` calls."""

    after = 0

    def _send(self, change: Change) -> object:
        answer = super()._send(change)
        type(self).after -= 1
        if type(self).after == 0:
            raise ClientKilledError(str(change))
        return answer


@pytest.fixture(scope="module")
def place(own_for_all: Endpoint) -> Endpoint:
    """An endpoint of this module; each test leaves it empty."""
    return own_for_all


@pytest.fixture(scope="module")
def lab(place: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    image = tmp_path_factory.mktemp("image") / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    key = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return Lab.model_validate(
        {
            "name": POOL,
            "pool": POOL,
            "node": place.node,
            "cpu": "qemu64",
            "storage": "local",
            "image_storage": "local",
            "image": {"file": str(image)},
            "template_vmid": FIRST,
            "bridges": ["vmbr1"],
            "guests": [_vm(1, place)],
            "ssh_public_key": key.with_suffix(".pub").read_text(),
        }
    )


def _vm(number: int, place: Endpoint) -> dict[str, object]:
    mac = f"02:DA:5C:00:00:1{number}"
    nics = [{"mac": mac, "bridge": "vmbr1", "address": f"10.77.9.{number}/24"}]
    size = {"cores": 1, "memory_mb": 64}
    return {"name": f"w{number}", "vmid": FIRST + number, "node": place.node, "nics": nics, **size}


def _client(place: Endpoint) -> Client:
    """Return the endpoint's settings as the inventory has them."""
    fields = ("host", "port", "user", "token_id", "token_secret", "ca_file")
    return Client.from_inventory({key: getattr(place, key) for key in fields})


@pytest.fixture
def bring(place: Endpoint, lab: Lab) -> Iterator[Callable[[bool], list[str]]]:
    """Create the lab (True) or remove it (False) and return the calls; removes it at the end."""

    def run(present: bool) -> list[str]:
        return provision(Request(_client(place), lab, present, parallel=1), apply=True).calls

    yield run
    run(False)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make the next client stop after this number of calls."""

    def set_limit(after: int) -> None:
        monkeypatch.setattr(InterruptedPve, "after", after)
        monkeypatch.setattr(module, "Pve", InterruptedPve)

    return set_limit


def leftovers(place: Endpoint) -> list[str]:
    """Return what a fresh endpoint does not have: machines, volumes, bridges, pending changes."""
    node = place.root().nodes(place.node)
    network = place.request("GET", f"/nodes/{place.node}/network").json()
    return [
        *(f"VM {row['vmid']}" for row in node.qemu.get()),
        *(row["volid"] for row in node.storage("local").content.get()),
        *(row["iface"] for row in network["data"] if row["iface"] != "vmbr0"),
        *([network["changes"]] if "changes" in network else []),
    ]


def test_lab_is_created_kept_and_removed(place: Endpoint, bring: Callable[[bool], list[str]]) -> None:
    calls = bring(True)
    assert len(calls) == UP
    assert bring(True) == []
    rows = place.api().nodes(place.node).qemu.get()
    assert [row["status"] for row in rows if "template" not in row] == ["running"]
    assert f"local:import/{POOL}.empty.qcow2" in leftovers(place)
    bring(False)
    assert leftovers(place) == []
    assert bring(False) == []


@pytest.mark.parametrize("after", range(1, UP + 1))
def test_destroy_cleans_up_after_an_interrupted_up(
    after: int, place: Endpoint, bring: Callable[[bool], list[str]], interrupt: Callable[[int], None]
) -> None:
    interrupt(after)
    with pytest.raises(ClientKilledError):
        bring(True)
    interrupt(0)
    bring(False)
    assert leftovers(place) == []


@pytest.mark.parametrize("after", range(1, UP + 1))
def test_interrupted_command_can_be_repeated(
    after: int, place: Endpoint, bring: Callable[[bool], list[str]], interrupt: Callable[[int], None]
) -> None:
    for present in (True, False) if after <= DOWN else (True,):
        interrupt(after)
        with pytest.raises(ClientKilledError):
            bring(present)
        interrupt(0)
        bring(present)
        assert bring(present) == []
    if after <= DOWN:
        assert leftovers(place) == []


def test_invisible_machine_with_our_vmid_is_an_error(
    place: Endpoint, bring: Callable[[bool], list[str]]
) -> None:
    root = place.root()
    place.done(root.nodes(place.node).qemu.post(vmid=FIRST + 1, memory=32), root)
    try:
        with pytest.raises(
            LabError, match=rf"may not see: {FIRST + 1} \(w1\)\n(.*\n)*  qm unlock {FIRST + 1};"
        ):
            bring(True)
        with pytest.raises(LabError, match=rf"remain on VMIDs of lab '{POOL}': {FIRST + 1} \(w1\)\n"):
            bring(False)
        assert leftovers(place) == [f"VM {FIRST + 1}"]
    finally:
        place.done(root.nodes(place.node).qemu(FIRST + 1).delete(), root)


def test_missing_pool_is_an_error_before_any_change(place: Endpoint, lab: Lab) -> None:
    elsewhere = Request(_client(place), lab.model_copy(update={"pool": "nosuch"}), True, parallel=1)
    with pytest.raises(LabError, match="has no pool 'nosuch'"):
        provision(elsewhere, apply=True)
    assert leftovers(place) == []


def test_image_without_delete_privilege_stays_with_an_error(
    place: Endpoint, bring: Callable[[bool], list[str]]
) -> None:
    role, root = "DaskLabImage", place.root()
    bring(True)
    _set(root, role, set(ROLES[role]) - {"Datastore.Allocate"})
    try:
        for _ in range(2):
            with pytest.raises(LabError, match=f"DELETE .*{POOL}.empty.qcow2: .*Datastore.Allocate"):
                bring(False)
            assert leftovers(place) == [f"local:import/{POOL}.empty.qcow2"]
    finally:
        _set(root, role, ROLES[role])


def test_pending_network_changes_of_others_stay(place: Endpoint, bring: Callable[[bool], list[str]]) -> None:
    network = place.root().nodes(place.node).network
    network.post(iface="vmbr5", type="bridge", comments="somebody else's")
    try:
        with pytest.raises(LabError, match=r"not applied yet \(vmbr5\)"):
            bring(True)
        assert [row["iface"] for row in network.get()] == ["vmbr0", "vmbr5"]
    finally:
        network.delete()


def test_moved_lab_leaves_its_old_vmids(
    place: Endpoint, lab: Lab, bring: Callable[[bool], list[str]]
) -> None:
    bring(True)
    moved = lab.model_copy(
        update={
            "template_vmid": FIRST + 1,
            "guests": tuple(vm.model_copy(update={"vmid": vm.vmid + 1}) for vm in lab.guests),
        }
    )
    provision(Request(_client(place), moved, True, parallel=4), apply=True)
    vmids = sorted(int(row["vmid"]) for row in place.api().nodes(place.node).qemu.get())
    assert vmids == [FIRST + 1, FIRST + 2]


def test_needed_privileges_are_sufficient_and_minimal(
    place: Endpoint, bring: Callable[[bool], list[str]]
) -> None:
    """The token has the privileges that ``needed`` returns. Without any of them the lab fails."""
    root = place.root()
    assert _comes_and_goes(place, bring)
    for need in needed(POOL, [place.node], "local", "local", ["vmbr1"], download=False):
        others = [r for r in ROLES if r != need.role and need.path == "/storage/local"]
        shared = {p for role in others for p in ROLES[role]} | {"Sys.Audit"}  # only doctor needs Sys.Audit
        for privilege in sorted(set(need.privileges) - shared):
            _set(root, need.role, set(need.privileges) - {privilege})
            try:
                assert not _comes_and_goes(place, bring), f"{need.role} does not need {privilege}"
            finally:
                _set(root, need.role, need.privileges)
                bring(False)


def _comes_and_goes(place: Endpoint, bring: Callable[[bool], list[str]]) -> bool:
    try:
        bring(True)
        bring(False)
    except LabError:
        return False
    return leftovers(place) == []


def _set(root: Any, role: str, privileges: Iterable[str]) -> None:
    root.access.roles(role).put(privs=",".join(sorted(privileges)))
