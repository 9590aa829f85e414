"""Which interface is the link under test, and what a command's failure becomes."""

from __future__ import annotations

import pytest
from dasklab_guest import common
from dasklab_guest.common import HostError

LINKS = [
    {"ifname": "eth0", "address": "02:da:5c:23:8d:00", "addr_info": [{"local": "10.77.0.11"}]},
    {"ifname": "eth1", "address": "02:da:5c:23:8d:01", "addr_info": [{"local": "10.77.1.11"}]},
    {"ifname": "eth2", "address": "02:da:5c:23:8d:02", "addr_info": []},
]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ({"mac": "02:DA:5C:23:8D:01", "address": "10.9.9.9"}, "eth1"),
        ({"name": "", "mac": "", "address": "10.77.1.11"}, "eth1"),
        ({"name": "eth2", "mac": ""}, "eth2"),
        ({"mac": "02:DA:5C:23:8D:09", "address": "10.77.1.11"}, None),
        ({}, None),
    ],
)
def test_interface_is_looked_up_by_name_mac_or_address(where: dict[str, str], name: str | None) -> None:
    link = common.find(LINKS, where)
    assert (link and link["ifname"]) == name


def test_management_interface_is_never_the_link_under_test() -> None:
    settings = {"lab": {"address": "10.77.0.11"}, "management_address": "10.77.0.11"}
    with pytest.raises(HostError, match="eth0 also carries the management address"):
        common.lab_link(settings, LINKS)


def test_missing_link_is_an_error() -> None:
    settings = {"lab": {"mac": "02:00:00:00:00:00"}, "management_address": "10.77.0.11"}
    with pytest.raises(HostError, match="no interface is the link under test: mac 02"):
        common.lab_link(settings, LINKS)


def test_driver_of_a_software_interface_is_its_kind() -> None:
    assert common.driver({"ifname": "nosuch0", "linkinfo": {"info_kind": "veth"}}) == "veth"
    assert common.driver({"ifname": "nosuch0"}) == ""


def test_failed_command_is_an_error_with_its_own_words() -> None:
    with pytest.raises(HostError, match="no room"):
        common.run(["sh", "-c", "echo no room >&2; exit 1"])


def test_dropped_frames_of_all_processors_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "0000f00d 00000003 00000001 00000000\n000000ff 0000000a 00000000 00000000\n"
    files = {"/proc/net/softnet_stat": rows}
    monkeypatch.setattr(common, "read", files.__getitem__)
    assert common.softnet_dropped() == 3 + 10
