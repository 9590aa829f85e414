"""Zones and vnets: pending changes, the interfaces of a node, the commands for its tunnels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from minipve.base.errors import UserError
from minipve.network import bridges, interfaces, sdn
from minipve.network.sdn import Sdn

PEERS = "10.0.0.1,10.0.0.2,10.0.0.3"
ZONE: dict[str, Any] = {"type": "vxlan", "peers": PEERS}
VNET: dict[str, Any] = {"type": "vnet", "zone": "lab", "tag": 77, "alias": "a lab's"}


@pytest.fixture
def running(tmp_path: Path) -> Sdn:
    running = Sdn(tmp_path / "sdn.json")
    with running.change() as draft:
        draft["zones"]["lab"], draft["vnets"]["lab0"] = dict(ZONE), dict(VNET)
    running.apply()
    return running


def test_configuration_runs_only_after_apply(running: Sdn) -> None:
    with running.change() as draft:
        draft["vnets"]["new"] = {"type": "vnet", "zone": "lab", "tag": 78}
        del draft["vnets"]["lab0"]
    assert set(running.rows("vnets")) == {"new"}
    assert set(running.rows("vnets", "running")) == {"lab0"}
    states = {name: row["state"] for name, row in running.rows("vnets", "pending").items()}
    assert states == {"lab0": "deleted", "new": "new"}


def test_pending_change_is_shown_with_what_runs(running: Sdn) -> None:
    with running.change() as draft:
        del draft["vnets"]["lab0"]["alias"]
        draft["vnets"]["lab0"]["tag"] = 79
    row = running.rows("vnets", "pending")["lab0"]
    assert (row["tag"], row["state"], row["pending"]) == (77, "changed", {"tag": 79, "alias": "deleted"})


def test_stored_configuration_survives_and_damage_is_an_error(running: Sdn) -> None:
    assert Sdn(running.file).data == running.data
    running.file.write_text('{"zones": []}')
    with pytest.raises(UserError, match=r"sdn\.json is damaged"):
        Sdn(running.file)


def test_zone_of_a_bridge(running: Sdn) -> None:
    assert (running.zone_of("lab0"), running.zone_of("vmbr0")) == ("lab", "localnetwork")


def test_node_has_a_bridge_and_a_tunnel_per_vnet(tmp_path: Path, running: Sdn) -> None:
    main = tmp_path / "interfaces"
    main.write_text(interfaces.write_interfaces(interfaces.default("10.0.0.2/24")))
    sdn.write(main, running.running, "pve2")
    ifaces = interfaces.load(tmp_path / "interfaces.d/sdn")
    assert (ifaces["lab0"].ports, ifaces["lab0"].mtu) == ("vxlan_lab0", "1450")
    assert ifaces["vxlan_lab0"].options_named("vxlan_remoteip") == ["10.0.0.1", "10.0.0.3"]
    assert (ifaces["vxlan_lab0"].vxlan_id, ifaces["vxlan_lab0"].mtu) == ("77", "1450")


def test_zone_of_other_nodes_gives_no_interfaces(running: Sdn) -> None:
    with running.change() as draft:
        draft["zones"]["lab"]["nodes"] = "pve,pve3"
    running.apply()
    assert list(sdn.on_node(running.running, "pve2")) == []
    assert [name for name, *_ in sdn.on_node(running.running, "pve3")] == ["lab0"]


def test_mtu_of_a_zone_and_no_tunnel_in_a_simple_zone() -> None:
    assert [sdn.zone_mtu(zone) for zone in (ZONE, ZONE | {"mtu": 1400}, {"type": "simple"})] == [
        1450,
        1400,
        1500,
    ]
    assert [iface.name for iface in sdn.stanzas("s0", {}, {"type": "simple"}, "", [])] == ["s0"]


CONFIGURED = {iface.name: iface for iface in sdn.stanzas("lab0", VNET, ZONE, "", ["10.0.0.2"])}
EXISTING = {"vxlan_lab0": {"master": "lab0", "linkinfo": {"info_data": {"id": 77, "port": 4789}}}}


def _commands(existing: dict[str, Any], peers: list[str]) -> list[str]:
    return [" ".join(words) for words in bridges.plan_tunnels(CONFIGURED, existing, {"vxlan_lab0": peers})]


def test_new_tunnel_is_a_bridge_port_with_all_peers() -> None:
    assert _commands({}, []) == [
        "ip link add vxlan_lab0 type vxlan id 77 dstport 4789",
        "ip link set vxlan_lab0 master lab0 mtu 1450 up",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.1",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.3",
    ]


def test_existing_tunnel_gets_new_peers_only() -> None:
    assert _commands(EXISTING, ["10.0.0.1", "10.0.0.3"]) == []
    assert _commands(EXISTING, ["10.0.0.1", "10.0.0.9"]) == [
        "bridge fdb delete 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.9",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.3",
    ]


def test_tunnel_with_another_id_is_replaced() -> None:
    other = {"vxlan_lab0": {"linkinfo": {"info_data": {"id": 78, "port": 4789}}}}
    assert _commands(other, ["10.0.0.1"])[:2] == [
        "ip link delete vxlan_lab0",
        "ip link add vxlan_lab0 type vxlan id 77 dstport 4789",
    ]
    assert bridges.plan_tunnels({}, EXISTING, {}) == [["ip", "link", "delete", "vxlan_lab0"]]
