"""The lab's machines on two nodes of a cluster, and the client cut off while it makes or removes the vnet.

Small machines of an empty disk: QEMU runs them, nothing boots.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines import preflight
from dasklab.machines import provision as module
from dasklab.machines.preflight import Requirements
from dasklab.machines.provision import Outcome, Request, provision
from dasklab.machines.topology import Lab

from tests.contract.conftest import POOL, minipve
from tests.contract.endpoint import Endpoint
from tests.contract.test_provision import FIRST, CutOffError, Scissors, _client

NODES = ("pve", "pve2")
MAKING = ("POST /cluster/sdn/zones", "POST /cluster/sdn/vnets", "PUT /cluster/sdn")


@pytest.fixture(scope="module")
def place(start: Callable[..., Endpoint]) -> Endpoint:
    return start("--nodes", "2")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    image = tmp_path_factory.mktemp("image") / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    given: dict[str, Any] = {"name": POOL, "pool": POOL, "node": "pve", "cpu": "qemu64"}
    given |= {"storage": "local", "image_storage": "local", "image": {"file": str(image)}}
    given |= {"template_vmid": FIRST, "bridges": ["labnet"], "ssh_public_key": "ssh-ed25519 AAAA test"}
    return Lab.model_validate(given | {"guests": [_vm(n, node) for n, node in enumerate(NODES, 1)]})


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


Bring = Callable[[bool], Outcome]


@pytest.fixture
def bring(place: Endpoint, lab: Lab) -> Iterator[Bring]:
    """Bring the lab up (or, with False, away); leaves nothing at the end."""

    def run(present: bool) -> Outcome:
        return provision(Request(_client(place), lab, present, parallel=2), apply=True)

    yield run
    run(False)
    assert what_is_left(place) == {"zones": [], "vnets": [], "guests": [], "bridges": [], "images": []}


def what_is_left(place: Endpoint) -> dict[str, list[Any]]:
    """All that a lab makes, configured or running, on any node."""
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


def test_each_machine_is_on_its_node_and_again_nothing_is_to_do(place: Endpoint, bring: Bring) -> None:
    made = bring(True)
    assert {name: guest["node"] for name, guest in made.guests.items()} == {"w1": "pve", "w2": "pve2"}
    assert [guest["status"] for guest in made.guests.values()] == ["running", "running"]
    assert bring(True).calls == []
    for node in NODES:
        listed = place.root().nodes(node).network.get(type="any_bridge")
        assert [row["iface"] for row in listed if row["type"] == "vnet"] == ["labnet"]
        (template,) = (row for row in place.root().nodes(node).qemu.get() if row.get("template"))
        assert template["name"] == f"{POOL}-template"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_cut_off_while_the_vnet_is_made(bring: Bring, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    with monkeypatch.context() as cut:
        cut.setattr(Scissors, "after", after)
        cut.setattr(module, "Pve", Scissors)
        with pytest.raises(CutOffError, match=MAKING[after - 1]):
            bring(True)
    if after == 2:
        assert MAKING[2] in bring(True).calls[0]
        assert bring(True).calls == []
    removed = bring(False).calls
    assert removed[-1].startswith("PUT /cluster/sdn") or after == 2


def test_what_others_have_is_left_alone(place: Endpoint, bring: Bring) -> None:
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


def test_a_node_that_is_down_is_told_in_one_line(place: Endpoint, bring: Bring) -> None:
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


def test_the_token_of_a_cluster_has_all_that_doctor_asks_for(place: Endpoint) -> None:
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
