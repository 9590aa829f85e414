"""LXC's configuration file of a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.guests.lxc import power

NET = "name=eth1,bridge=vmbr1,hwaddr=02:DA:5C:00:00:12,ip=10.77.0.11/24,gw=10.77.0.1,rate=12.5"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_configuration_has_identity_ids_and_nics(paths: Paths) -> None:
    options = {"hostname": "client.lab", "net1": NET, "features": "nesting=1"}
    lines = power.lxc_configuration(100, options, paths, 100_000).splitlines()
    assert {
        "lxc.uts.name = client",
        "lxc.idmap = u 0 100000 65536",
        "lxc.net.1.veth.pair = veth100i1",
    } <= set(lines)
    assert "lxc.net.1.hwaddr = 02:DA:5C:00:00:12" in lines and "lxc.net.1.link = vmbr1" in lines
    assert not any(line.startswith("lxc.net.1.ipv4") for line in lines), "the container sets its own address"
    managed = power.lxc_configuration(100, {"net1": f"{NET},host-managed=1"}, paths, 0).splitlines()
    assert "lxc.net.1.ipv4.address = 10.77.0.11/24" in managed
    assert not any("idmap" in line for line in managed), "a privileged container has no ID map"
    down = power.lxc_configuration(100, {"net1": f"{NET},link_down=1"}, paths, 0)
    assert "lxc.net.1.link" not in down
