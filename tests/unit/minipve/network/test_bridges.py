"""Planning bridges; bridges, taps and rate caps in a real namespace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from minipve.network import bridges, interfaces
from minipve.network.interfaces import Iface

from tests.waiting import PATIENCE_S


def existing(name: str, ageing: int = 30000, address: str = "") -> dict[str, object]:
    local, _, prefix = address.partition("/")
    addresses = [{"family": "inet", "local": local, "prefixlen": int(prefix)}] if address else []
    info = {"info_data": {"ageing_time": ageing}}
    return {"ifname": name, "mtu": 1500, "linkinfo": info, "addr_info": addresses}


CONFIGURED = {"vmbr1": interfaces.bridge("vmbr1", "10.1.0.1/24")}


PLANS = [
    ("nothing to do", CONFIGURED, {"vmbr1": existing("vmbr1", address="10.1.0.1/24")}, []),
    ("removed", {}, {"vmbr1": existing("vmbr1")}, ["ip link delete vmbr1"]),
    (
        "another address",
        CONFIGURED,
        {"vmbr1": existing("vmbr1", address="10.2.0.1/24")},
        ["ip address delete 10.2.0.1/24 dev vmbr1", "ip address add 10.1.0.1/24 dev vmbr1"],
    ),
    (
        "flooding",
        {"vmbr1": Iface("vmbr1", ports="none", options=("bridge-ageing 0",))},
        {"vmbr1": existing("vmbr1")},
        ["ip link set vmbr1 type bridge ageing_time 0"],
    ),
    ("not auto", {"vmbr1": Iface("vmbr1", ports="none", auto=False)}, {}, []),
]


@pytest.mark.parametrize(
    ("configured", "present", "commands"), [row[1:] for row in PLANS], ids=[r[0] for r in PLANS]
)
def test_bridge_plan(
    configured: dict[str, Iface], present: dict[str, dict[str, object]], commands: list[str]
) -> None:
    assert [" ".join(words) for words in bridges.plan(configured, present)] == commands


def test_new_bridge_has_a_fixed_mac_and_no_spanning_tree() -> None:
    create, up, address = (" ".join(words) for words in bridges.plan(CONFIGURED, {}))
    assert create == (
        f"ip link add vmbr1 address {bridges.bridge_mac('vmbr1')} type bridge "
        "stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time 30000"
    )
    assert up.endswith("up") and address == "ip address add 10.1.0.1/24 dev vmbr1"
    assert bridges.bridge_mac("vmbr1") != bridges.bridge_mac("vmbr0")
    assert bridges.bridge_mac("vmbr0", "pve") != bridges.bridge_mac(
        "vmbr0", "pve2"
    )  # nodes share one network


SCRIPT = """
from pathlib import Path
from minipve.network import interfaces, bridges, guest_ports, links
from minipve.base.paths import Paths
paths = Paths(Path({state!r}), Path({state!r}))
paths.interfaces.parent.mkdir(parents=True)
paths.interfaces.write_text(interfaces.write_interfaces(interfaces.default("10.9.0.1/24")))
bridges.reload(paths)
links.plug_tap("tap100i0", "vmbr0")
assert links.machine_taps(100) == ["tap100i0"], links.machine_taps(100)
first = guest_ports.set_rate("tap100i0", 1310720)
assert first in ("police", "shape-ifb"), first
assert guest_ports.set_rate("tap100i0", 2621440) == first
assert guest_ports.set_rate("tap100i0", None) == "" and not links.exists("ifb100i0")
links.unplug(links.machine_taps(100))
assert sorted(links.counters("")) == ["lo", "vmbr0"], links.counters("")
bridges.reload(paths)
try:
    links.plug_tap("tap100i0", "vmbr7")
except links.MachineError as error:
    assert str(error) == "bridge 'vmbr7' does not exist"
print("done")
"""


@pytest.mark.skipif(
    not os.access("/dev/net/tun", os.W_OK), reason="/dev/net/tun cannot be opened: no taps on this host"
)
def test_bridges_taps_and_rate_caps_in_a_namespace(tmp_path: Path) -> None:
    import sys

    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    code = SCRIPT.format(state=str(tmp_path))
    result = subprocess.run(
        ["unshare", *user, "--net", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
