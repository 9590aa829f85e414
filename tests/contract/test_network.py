"""The node's bridges: made by API, kept aside until a reload; options that the API lacks are kept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint, refused


@pytest.fixture
def network(ours: Endpoint, allow: Allow) -> Iterator[str]:
    """A free bridge name that the token may use, and so see; removed again."""
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


def test_create_reload_delete(ours: Endpoint, network: str) -> None:
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


def test_ageing_written_by_hand_is_applied_and_kept(ours: Endpoint, network: str) -> None:
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


def test_pending_changes_can_be_dropped(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    call.post(iface=network, type="bridge")
    call.delete()
    assert all(row["iface"] != network for row in call.get())


def test_a_bridge_is_listed_for_those_who_may_use_it(ours: Endpoint) -> None:
    call, root = ours.api().nodes(ours.node).network, ours.root().nodes(ours.node).network
    root.post(iface="vmbr8", type="bridge")
    assert "vmbr8" not in {row["iface"] for row in call.get()}
    assert "vmbr8" in {row["iface"] for row in root.get()}
    ours.grant("/sdn/zones/localnetwork/vmbr8/5", "Tagged", ["SDN.Use"])
    assert "vmbr8" in {row["iface"] for row in call.get()}
    ours.root().access.roles("Tagged").delete()
    root.delete()


def test_what_the_api_cannot_express(ours: Endpoint, network: str) -> None:
    call = ours.api().nodes(ours.node).network
    error = refused(call.post, iface=network, type="bridge", bridge_ageing=0)
    text = "property is not defined in schema and the schema does not allow additional properties"
    assert error.errors == {"bridge_ageing": text}
    assert refused(call("nosuch0").get).errors == {"iface": "interface does not exist"}
