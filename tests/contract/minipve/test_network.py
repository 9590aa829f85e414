"""The node's bridges: changes by API are pending until a reload; options unknown to the API are kept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused


@pytest.fixture
def network(ours: Endpoint, allow: Allow) -> Iterator[str]:
    """The name of a bridge that does not exist and that the token may use; removed afterwards."""
    allow("SDN.Use", path="/sdn/zones/localnetwork/vmbr7")
    yield "vmbr7"
    call = ours.api().nodes(ours.node).network
    call.delete()
    if any(row["iface"] == "vmbr7" for row in call.get()):
        call("vmbr7").delete()
        ours.done(call.put())


def _links(endpoint: Endpoint) -> str:
    assert endpoint.state is not None
    words = [str(endpoint.state / "enter-shell"), "-c", "ip -d link show type bridge"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_bridge_exists_from_reload_to_reload(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    call.post(iface=network, type="bridge", autostart=1, comments="lab")
    assert network not in _links(ours)
    changes = ours.request("GET", f"/nodes/{ours.node}/network").json()["changes"]
    assert f"+iface {network} inet manual" in changes
    ours.done(call.put())
    assert network in _links(ours)
    assert "changes" not in ours.request("GET", f"/nodes/{ours.node}/network").json()
    row = call(network).get()
    assert (row["type"], row["active"], row["autostart"], row["comments"]) == ("bridge", 1, 1, "lab\n")
    assert refused(call.post, iface=network, type="bridge").errors == {"iface": "interface already exists"}
    call(network).delete()
    ours.done(call.put())
    assert network not in _links(ours)


def test_hand_written_ageing_is_applied_and_kept(ours: Endpoint, network: str) -> None:
    assert ours.state is not None
    call = ours.api().nodes(ours.node).network
    call.post(iface=network, type="bridge", autostart=1)
    ours.done(call.put())
    assert "ageing_time 30000" in _links(ours)
    file = ours.state / "etc/network/interfaces"
    file.write_text(
        file.read_text().replace(
            f"iface {network} inet manual", f"iface {network} inet manual\n\tbridge-ageing 0"
        )
    )
    ours.done(call.put())
    assert "ageing_time 0" in _links(ours)
    assert call(network).get()["options"] == ["bridge-ageing 0"]
    call(network).put(type="bridge", autostart=1, comments="changed")
    ours.done(call.put())
    assert call(network).get()["options"] == ["bridge-ageing 0"]


def test_change_of_a_bridge_keeps_what_it_does_not_name(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    call.post(iface=network, type="bridge", autostart=1, cidr="10.9.0.1/24", mtu=1400, comments="lab")
    before = call(network).get()
    call(network).put(type="bridge", comments="changed")
    assert call(network).get() == before | {"comments": "changed\n"}
    call(network).put(type="bridge", cidr="10.9.1.1/25", delete="mtu")
    row = call(network).get()
    assert (row["cidr"], row["address"], row["autostart"], "mtu" in row) == (
        "10.9.1.1/25",
        "10.9.1.1",
        1,
        False,
    )
    call(network).put(type="bridge", delete="address")
    assert "cidr" not in call(network).get()


def test_pending_network_changes_can_be_reverted(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    call.post(iface=network, type="bridge")
    call.delete()
    assert all(row["iface"] != network for row in call.get())


def test_list_shows_usable_bridges_only(ours: Endpoint) -> None:
    call, root = ours.api().nodes(ours.node).network, ours.root().nodes(ours.node).network
    root.post(iface="vmbr8", type="bridge")
    assert "vmbr8" not in {row["iface"] for row in call.get()}
    assert "vmbr8" in {row["iface"] for row in root.get()}
    ours.grant("/sdn/zones/localnetwork/vmbr8/5", "Tagged", ["SDN.Use"])
    assert "vmbr8" in {row["iface"] for row in call.get()}
    ours.root().access.roles("Tagged").delete()
    root.delete()


def test_bridge_ageing_is_not_an_api_parameter(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    error = refused(call.post, iface=network, type="bridge", bridge_ageing=0)
    text = "property is not defined in schema and the schema does not allow additional properties"
    assert error.errors == {"bridge_ageing": text}
    assert refused(call("nosuch0").get).errors == {"iface": "interface does not exist"}
