"""NIC facts: the unit of a rate, the text of netN, and what an override leaves alone."""

from __future__ import annotations

from ipaddress import IPv4Interface
from typing import get_args

import pytest
from dasklab.model import nic
from dasklab.model.nic import Nic, NicOverride, container_net_to_pve, net_from_pve, net_to_pve, rate_to_pve
from hypothesis import given
from hypothesis import strategies as st

MAC = "02:DA:5C:23:8D:01"


def test_every_model_has_drivers() -> None:
    assert set(nic.DRIVERS) == set(get_args(nic.NicModel))
    assert all(nic.DRIVERS.values())


# Mbit/s; PVE's MiB/s, as the golden recordings have them; the bytes/s that tc is given.
@pytest.mark.parametrize(
    ("mbit", "mib", "whole"),
    [
        (1000, "119.2092896", 125_000_000),
        (100, "11.920929", 12_500_000),
        (8.388608, "1", 1_048_576),
        (0.000001, "0.000001", 1),
    ],
)
def test_a_rate_is_told_in_mebibytes_per_second(mbit: float, mib: str, whole: int) -> None:
    assert rate_to_pve(mbit) == mib
    assert int(float(mib) * 1048576) == whole


@given(st.integers(min_value=1, max_value=12_500_000_000))
def test_every_whole_number_of_bytes_survives_the_way_to_pve(whole: int) -> None:
    assert int(float(rate_to_pve(whole * 8 / 1e6)) * 1048576) == whole


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Nic(mac=MAC, bridge="vmbr1"), f"virtio={MAC.lower()},bridge=vmbr1"),
        (Nic(mac=MAC, bridge="vmbr1"), f"bridge=vmbr1,model=virtio,macaddr={MAC}"),
        (Nic(mac=MAC, bridge="vmbr1"), f"virtio,bridge=vmbr1,macaddr={MAC},link_down=0"),
        (Nic(mac=MAC, bridge="vmbr1", rate_mbit=8.388608), f"virtio={MAC},bridge=vmbr1,firewall=0,rate=1"),
        (Nic(mac=MAC, bridge="vmbr1", rate_mbit=100), f"virtio={MAC},bridge=vmbr1,rate=11.9209290"),
        (Nic(mac=MAC, bridge="vmbr1", model="e1000"), f"e1000={MAC},firewall=0,bridge=vmbr1"),
    ],
)
def test_nics_are_the_same_however_they_are_spelt(ours: Nic, theirs: str) -> None:
    assert net_from_pve(net_to_pve(ours)) == net_from_pve(theirs)


@pytest.mark.parametrize(
    "other",
    [
        f"e1000={MAC},bridge=vmbr1",
        f"virtio={MAC},bridge=vmbr2",
        f"virtio={MAC},bridge=vmbr1,rate=1",
        f"virtio={MAC},bridge=vmbr1,link_down=1",
        f"virtio={MAC},bridge=vmbr1,trunks=1:2",
    ],
)
def test_nics_that_differ_are_seen_to_differ(other: str) -> None:
    assert net_from_pve(net_to_pve(Nic(mac=MAC, bridge="vmbr1"))) != net_from_pve(other)


def test_what_is_read_back_says_model_and_cap() -> None:
    found = net_from_pve(f"e1000e={MAC.lower()},bridge=vmbr1,rate=119.2092896,tag=7")
    assert (found.model, found.mac, found.bridge, found.rate_mbit) == ("e1000e", MAC, "vmbr1", 1000)
    assert found.others["tag"] == "7"


def test_cards_are_found_among_other_keys_and_in_their_order() -> None:
    keys = ["net10", "net2", "nets", "netmask0", "name", "net1a"]
    assert nic.net_keys(keys) == ["net2", "net10"]


def test_an_override_leaves_alone_what_it_does_not_name() -> None:
    e1000 = Nic(mac=MAC, bridge="vmbr1", model="e1000", rate_mbit=50)
    assert NicOverride(rate_mbit=100).on(e1000) == Nic(mac=MAC, bridge="vmbr1", model="e1000", rate_mbit=100)
    assert NicOverride(model="rtl8139").on(e1000).rate_mbit == 50
    assert NicOverride(rate_mbit=0).on(e1000).rate_mbit == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Nic(mac=MAC, bridge="vmbr1", model="veth", address=IPv4Interface("10.0.0.5/24")),
            f"name=eth1,bridge=vmbr1,firewall=0,hwaddr={MAC.lower()},ip=10.0.0.5/24,type=veth",
        ),
        (
            Nic(mac=MAC, bridge="vmbr1", model="veth", rate_mbit=100),
            f"bridge=vmbr1,hwaddr={MAC},name=eth1,rate=11.9209290,type=veth",
        ),
    ],
)
def test_a_containers_card_is_the_same_however_it_is_spelt(ours: Nic, theirs: str) -> None:
    assert net_from_pve(container_net_to_pve(1, ours)) == net_from_pve(theirs)
    assert net_from_pve(theirs).model == "veth"
    assert net_from_pve(theirs) != net_from_pve(theirs.replace("eth1", "eth2"))


def test_a_card_is_told_in_words() -> None:
    assert str(net_from_pve("e1000=02:00:00:00:00:01,bridge=vmbr1,firewall=0")) == "e1000 on vmbr1"
    capped = net_from_pve("virtio=02:00:00:00:00:01,bridge=vmbr1,rate=119.2092896")
    assert str(capped) == "virtio on vmbr1, 1000 Mbit/s"
