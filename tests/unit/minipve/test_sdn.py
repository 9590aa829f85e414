"""Zones and vnets: what waits, what a node makes of what runs, and the commands that bring tunnels there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from minipve.network import interfaces, sdn, tunnels, vnets
from minipve.network.sdn import Sdn
from minipve.user_error import UserError

PEERS = "10.0.0.1,10.0.0.2,10.0.0.3"
ZONE: dict[str, Any] = {"type": "vxlan", "peers": PEERS}
VNET: dict[str, Any] = {"type": "vnet", "zone": "lab", "tag": 77, "alias": "a lab's"}


@pytest.fixture
def running(tmp_path: Path) -> Sdn:
    made = Sdn(tmp_path / "sdn.json")
    with made.change() as draft:
        draft["zones"]["lab"], draft["vnets"]["lab0"] = dict(ZONE), dict(VNET)
    made.apply()
    return made


def test_what_is_configured_waits_until_it_is_applied(running: Sdn) -> None:
    with running.change() as draft:
        draft["vnets"]["new"] = {"type": "vnet", "zone": "lab", "tag": 78}
        del draft["vnets"]["lab0"]
    assert set(running.rows("vnets")) == {"new"}
    assert set(running.rows("vnets", "running")) == {"lab0"}
    told = {name: row["state"] for name, row in running.rows("vnets", "pending").items()}
    assert told == {"lab0": "deleted", "new": "new"}


def test_a_change_that_waits_is_told_beside_what_runs(running: Sdn) -> None:
    with running.change() as draft:
        del draft["vnets"]["lab0"]["alias"]
        draft["vnets"]["lab0"]["tag"] = 79
    row = running.rows("vnets", "pending")["lab0"]
    assert (row["tag"], row["state"], row["pending"]) == (77, "changed", {"tag": 79, "alias": "deleted"})


def test_it_is_there_after_a_restart_and_damage_is_told(running: Sdn) -> None:
    assert Sdn(running.file).data == running.data
    running.file.write_text('{"zones": []}')
    with pytest.raises(UserError, match=r"sdn\.json is damaged"):
        Sdn(running.file)


def test_rights_on_a_vnet_count_in_its_zone(running: Sdn) -> None:
    assert (running.zone_of("lab0"), running.zone_of("vmbr0")) == ("lab", "localnetwork")


def test_a_node_has_a_bridge_and_a_tunnel_to_the_others(tmp_path: Path, running: Sdn) -> None:
    main = tmp_path / "interfaces"
    main.write_text(interfaces.write_interfaces(interfaces.default("10.0.0.2/24")))
    vnets.write(main, running.running, "pve2")
    found = interfaces.load(tmp_path / "interfaces.d/sdn")
    assert (found["lab0"].ports, found["lab0"].mtu) == ("vxlan_lab0", "1450")
    assert found["vxlan_lab0"].options_named("vxlan_remoteip") == ["10.0.0.1", "10.0.0.3"]
    assert (found["vxlan_lab0"].vxlan_id, found["vxlan_lab0"].mtu) == ("77", "1450")


def test_a_zone_of_other_nodes_leaves_nothing_here(running: Sdn) -> None:
    with running.change() as draft:
        draft["zones"]["lab"]["nodes"] = "pve,pve3"
    running.apply()
    assert list(sdn.on_node(running.running, "pve2")) == []
    assert [name for name, *_ in sdn.on_node(running.running, "pve3")] == ["lab0"]


def test_a_zone_may_name_its_mtu_and_a_simple_one_has_no_tunnel() -> None:
    assert [sdn.mtu(zone) for zone in (ZONE, ZONE | {"mtu": 1400}, {"type": "simple"})] == [1450, 1400, 1500]
    assert [iface.name for iface in vnets.stanzas("s0", {}, {"type": "simple"}, [])] == ["s0"]


WANTED = {iface.name: iface for iface in vnets.stanzas("lab0", VNET, ZONE, ["10.0.0.2"])}
PRESENT = {"vxlan_lab0": {"master": "lab0", "linkinfo": {"info_data": {"id": 77, "port": 4789}}}}


def _commands(present: dict[str, Any], peers: list[str]) -> list[str]:
    return [" ".join(words) for words in tunnels.plan(WANTED, present, {"vxlan_lab0": peers})]


def test_a_tunnel_is_made_a_port_with_everybody_else_behind_it() -> None:
    assert _commands({}, []) == [
        "ip link add vxlan_lab0 type vxlan id 77 dstport 4789",
        "ip link set vxlan_lab0 master lab0 mtu 1450 up",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.1",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.3",
    ]


def test_a_tunnel_that_is_there_is_left_alone_and_peers_follow() -> None:
    assert _commands(PRESENT, ["10.0.0.1", "10.0.0.3"]) == []
    assert _commands(PRESENT, ["10.0.0.1", "10.0.0.9"]) == [
        "bridge fdb delete 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.9",
        "bridge fdb append 00:00:00:00:00:00 dev vxlan_lab0 dst 10.0.0.3",
    ]


def test_a_tunnel_of_another_number_is_made_anew_and_one_too_many_goes() -> None:
    other = {"vxlan_lab0": {"linkinfo": {"info_data": {"id": 78, "port": 4789}}}}
    assert _commands(other, ["10.0.0.1"])[:2] == [
        "ip link delete vxlan_lab0",
        "ip link add vxlan_lab0 type vxlan id 77 dstport 4789",
    ]
    assert tunnels.plan({}, PRESENT, {}) == [["ip", "link", "delete", "vxlan_lab0"]]
