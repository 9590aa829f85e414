"""NICs: the unit of a rate, the text of netN, and settings that change a NIC."""

from __future__ import annotations

from ipaddress import IPv4Interface
from typing import get_args

import pytest
from dasklab.model.settings import nic
from dasklab.model.settings.nic import (
    Nic,
    NicOverride,
    container_net_to_pve,
    net_from_pve,
    net_to_pve,
    rate_to_pve,
)
from hypothesis import given
from hypothesis import strategies as st

MAC = "02:DA:5C:23:8D:01"


def test_every_model_has_drivers() -> None:
    assert set(nic.DRIVERS) == set(get_args(nic.NicModel))
    assert all(nic.DRIVERS.values())


# Mbit/s, MiB/s as in recorded answers of PVE, and bytes/s as passed to tc.
@pytest.mark.parametrize(
    ("mbit", "mib", "whole"),
    [
        (1000, "119.2092896", 125_000_000),
        (100, "11.920929", 12_500_000),
        (8.388608, "1", 1_048_576),
        (0.000001, "0.000001", 1),
    ],
)
def test_rate_is_converted_to_mebibytes_per_second(mbit: float, mib: str, whole: int) -> None:
    assert rate_to_pve(mbit) == mib
    assert int(float(mib) * 1048576) == whole


@given(st.integers(min_value=1, max_value=12_500_000_000))
def test_rate_in_bytes_per_second_is_exact_in_pve(whole: int) -> None:
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
def test_spellings_of_a_nic_are_equal(ours: Nic, theirs: str) -> None:
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
def test_nics_with_other_values_are_not_equal(other: str) -> None:
    assert net_from_pve(net_to_pve(Nic(mac=MAC, bridge="vmbr1"))) != net_from_pve(other)


def test_nic_read_from_pve_has_model_and_rate() -> None:
    found = net_from_pve(f"e1000e={MAC.lower()},bridge=vmbr1,rate=119.2092896,tag=7")
    assert (found.model, found.mac, found.bridge, found.rate_mbit) == ("e1000e", MAC, "vmbr1", 1000)
    assert found.others["tag"] == "7"


def test_net_keys_are_sorted_by_number() -> None:
    keys = ["net10", "net2", "nets", "netmask0", "name", "net1a"]
    assert nic.net_keys(keys) == ["net2", "net10"]


def test_settings_change_only_the_keys_that_they_have() -> None:
    e1000 = Nic(mac=MAC, bridge="vmbr1", model="e1000", rate_mbit=50)
    assert NicOverride(rate_mbit=100).apply_to(e1000) == Nic(
        mac=MAC, bridge="vmbr1", model="e1000", rate_mbit=100
    )
    assert NicOverride(model="rtl8139").apply_to(e1000).rate_mbit == 50
    assert NicOverride(rate_mbit=0).apply_to(e1000).rate_mbit == 0


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
def test_spellings_of_a_containers_nic_are_equal(ours: Nic, theirs: str) -> None:
    assert net_from_pve(container_net_to_pve(1, ours)) == net_from_pve(theirs)
    assert net_from_pve(theirs).model == "veth"
    assert net_from_pve(theirs) != net_from_pve(theirs.replace("eth1", "eth2"))


def test_nic_is_described_in_words() -> None:
    assert str(net_from_pve("e1000=02:00:00:00:00:01,bridge=vmbr1,firewall=0")) == "e1000 on vmbr1"
    capped = net_from_pve("virtio=02:00:00:00:00:01,bridge=vmbr1,rate=119.2092896")
    assert str(capped) == "virtio on vmbr1, 1000 Mbit/s"
