"""Reading and writing /etc/network/interfaces."""

from __future__ import annotations

import pytest
from minipve.network import interfaces

NODE = """\
auto lo
iface lo inet loopback

auto vmbr0
iface vmbr0 inet static
\taddress 10.77.0.1/24
\tbridge-ports none
\tbridge-stp off
\tbridge-fd 0

auto vmbr1
iface vmbr1 inet manual
\tbridge-ports none
\tbridge-stp off
\tbridge-fd 0
\tbridge-ageing 0
\tup echo hello
#the link under test
"""


def test_interfaces_file_is_parsed() -> None:
    ifaces = interfaces.read_interfaces(NODE)
    assert list(ifaces) == ["lo", "vmbr0", "vmbr1"]
    assert ifaces["vmbr0"].address == "10.77.0.1/24"
    assert (ifaces["vmbr0"].ageing_s, ifaces["vmbr1"].ageing_s) == (300, 0)
    assert ifaces["vmbr1"].options == ("bridge-ageing 0", "up echo hello")
    assert ifaces["vmbr1"].comments == "the link under test\n"
    assert not ifaces["lo"].is_bridge


def test_written_interfaces_read_back_equal() -> None:
    ifaces = interfaces.read_interfaces(NODE)
    assert interfaces.read_interfaces(interfaces.write_interfaces(ifaces)) == ifaces


@pytest.mark.parametrize("line", ["bridge-ageing 0", "bridge_ageing 0", "bridge-ageing   0"])
def test_bridge_ageing_in_each_spelling(line: str) -> None:
    text = f"iface vmbr9 inet manual\n  bridge_ports none\n  {line}\n"
    bridge = interfaces.read_interfaces(text)["vmbr9"]
    assert bridge.is_bridge and bridge.ageing_s == 0 and not bridge.auto
