"""Provision a lab on two nodes of a cluster, with a client that is interrupted while it creates the vnet.

The machines have an empty disk: QEMU runs them, but nothing boots.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint import preflight
from dasklab.machines.endpoint.preflight import Requirements
from dasklab.machines.inventory.topology import Lab
from dasklab.machines.plan import provision as module
from dasklab.machines.plan.provision import ProvisionResult, Request, provision

from tests.contract.conftest import POOL, minipve
from tests.contract.endpoint import Endpoint
from tests.contract.lab.test_provision import FIRST, ClientKilledError, InterruptedPve, _client

NODES = ("pve", "pve2")
VNET_CALLS = ("POST /cluster/sdn/zones", "POST /cluster/sdn/vnets", "PUT /cluster/sdn")


@pytest.fixture(scope="module")
def place(start: Callable[..., Endpoint]) -> Endpoint:
    return start("--nodes", "2")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    image = tmp_path_factory.mktemp("image") / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    settings: dict[str, Any] = {"name": POOL, "pool": POOL, "node": "pve", "cpu": "qemu64"}
    settings |= {"storage": "local", "image_storage": "local", "image": {"file": str(image)}}
    settings |= {"template_vmid": FIRST, "bridges": ["labnet"], "ssh_public_key": "ssh-ed25519 AAAA test"}
    return Lab.model_validate(settings | {"guests": [_vm(n, node) for n, node in enumerate(NODES, 1)]})


def _vm(number: int, node: str) -> dict[str, Any]:
    nics = [
        {
            "mac": f"02:DA:5C:00:0{slot}:1{number}",
            "bridge": bridge,
            "address": f"10.77.{slot + 8}.{number}/24",
        }
        for slot, bridge in enumerate(("vmbr0", "labnet"))
    ]
    size = {"cores": 1, "memory_mb": 64}
    return {"name": f"w{number}", "vmid": FIRST + number, "node": node, "nics": nics, **size}


Bring = Callable[[bool], ProvisionResult]


@pytest.fixture
def bring(place: Endpoint, lab: Lab) -> Iterator[Bring]:
    """Create the lab (True) or remove it (False); removes it at the end."""

    def run(present: bool) -> ProvisionResult:
        return provision(Request(_client(place), lab, present, parallel=2), apply=True)

    yield run
    run(False)
    assert leftovers(place) == {"zones": [], "vnets": [], "guests": [], "bridges": [], "images": []}


def leftovers(place: Endpoint) -> dict[str, list[Any]]:
    """Return everything that a lab creates, configured or running, on any node."""
    root = place.root()
    sdn = root.cluster.sdn
    networks = [root.nodes(node).network.get(type="any_bridge") for node in NODES]
    stores = [root.nodes(node).storage("local").content.get(content="import") for node in NODES]
    return {
        "zones": sdn.zones.get(pending=1),
        "vnets": sdn.vnets.get(pending=1),
        "guests": root.cluster.resources.get(type="vm"),
        "bridges": [row["iface"] for rows in networks for row in rows if row["iface"] != "vmbr0"],
        "images": [row["volid"] for rows in stores for row in rows],
    }


def test_machines_are_on_their_nodes_and_second_run_changes_nothing(place: Endpoint, bring: Bring) -> None:
    outcome = bring(True)
    assert {name: guest["node"] for name, guest in outcome.guests.items()} == {"w1": "pve", "w2": "pve2"}
    assert [guest["status"] for guest in outcome.guests.values()] == ["running", "running"]
    assert bring(True).calls == []
    for node in NODES:
        listed = place.root().nodes(node).network.get(type="any_bridge")
        assert [row["iface"] for row in listed if row["type"] == "vnet"] == ["labnet"]
        (template,) = (row for row in place.root().nodes(node).qemu.get() if row.get("template"))
        assert template["name"] == f"{POOL}-template"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_interrupted_creation_of_the_vnet_can_be_repeated(
    bring: Bring, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    with monkeypatch.context() as cut:
        cut.setattr(InterruptedPve, "after", after)
        cut.setattr(module, "Pve", InterruptedPve)
        with pytest.raises(ClientKilledError, match=VNET_CALLS[after - 1]):
            bring(True)
    if after == 2:
        assert VNET_CALLS[2] in bring(True).calls[0]
        assert bring(True).calls == []
    removed = bring(False).calls
    assert removed[-1].startswith("PUT /cluster/sdn") or after == 2


def test_other_zones_and_vnets_stay(place: Endpoint, bring: Bring) -> None:
    sdn = place.root().cluster.sdn
    sdn.zones.post(zone="office", type="simple")
    sdn.vnets.post(vnet="desks", zone="office")
    place.done(sdn.put(), place.root())
    try:
        bring(True)
        bring(False)
        assert [row["vnet"] for row in sdn.vnets.get(running=1)] == ["desks"]
    finally:
        sdn.vnets("desks").delete()
        sdn.zones("office").delete()
        place.done(sdn.put(), place.root())


def test_node_that_is_off_is_an_error(place: Endpoint, bring: Bring) -> None:
    assert place.state is not None
    bring(True)
    switch = ("node", "pve2")
    assert minipve(*switch, "off", state=place.state).returncode == 0
    try:
        with pytest.raises(LabError, match="node pve2 is down, and hosts of the lab are on it"):
            bring(True)
    finally:
        assert minipve(*switch, "on", state=place.state).returncode == 0
    assert [call.split(" ")[1] for call in bring(True).calls] == [
        f"/nodes/pve2/qemu/{FIRST + 2}/status/start"
    ]


def test_doctor_is_satisfied_with_the_clusters_token(place: Endpoint) -> None:
    required = Requirements(
        lab=POOL,
        pool=POOL,
        nodes=NODES,
        storage="local",
        image_storage="local",
        download=True,
        own_bridge="labnet",
        bridges=frozenset({"vmbr0", "labnet"}),
    )
    settings = _client(place).model_dump()
    assert [finding.text for finding in preflight.endpoint(required, settings) if not finding.ok] == []
