from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from minipve.network import bridges, interfaces, links, rate
from minipve.network.interfaces import Iface

from tests.waiting import PATIENCE_S

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
#the links under test
"""


def test_interfaces_are_read() -> None:
    found = interfaces.read_interfaces(NODE)
    assert list(found) == ["lo", "vmbr0", "vmbr1"]
    assert found["vmbr0"].address == "10.77.0.1/24"
    assert (found["vmbr0"].ageing_s, found["vmbr1"].ageing_s) == (300, 0)
    assert found["vmbr1"].options == ("bridge-ageing 0", "up echo hello")
    assert found["vmbr1"].comments == "the links under test\n"
    assert not found["lo"].is_bridge


def test_what_is_written_reads_back_the_same() -> None:
    found = interfaces.read_interfaces(NODE)
    assert interfaces.read_interfaces(interfaces.write_interfaces(found)) == found


@pytest.mark.parametrize("line", ["bridge-ageing 0", "bridge_ageing 0", "bridge-ageing   0"])
def test_ageing_in_all_spellings_of_ifupdown2(line: str) -> None:
    text = f"iface vmbr9 inet manual\n  bridge_ports none\n  {line}\n"
    bridge = interfaces.read_interfaces(text)["vmbr9"]
    assert bridge.is_bridge and bridge.ageing_s == 0 and not bridge.auto


def present(name: str, ageing: int = 30000, address: str = "") -> dict[str, object]:
    local, _, prefix = address.partition("/")
    addresses = [{"family": "inet", "local": local, "prefixlen": int(prefix)}] if address else []
    info = {"info_data": {"ageing_time": ageing}}
    return {"ifname": name, "mtu": 1500, "linkinfo": info, "addr_info": addresses}


WANTED = {"vmbr1": interfaces.bridge("vmbr1", "10.1.0.1/24")}
PLANS = [
    ("nothing to do", WANTED, {"vmbr1": present("vmbr1", address="10.1.0.1/24")}, []),
    ("gone", {}, {"vmbr1": present("vmbr1")}, ["ip link delete vmbr1"]),
    (
        "another address",
        WANTED,
        {"vmbr1": present("vmbr1", address="10.2.0.1/24")},
        ["ip address delete 10.2.0.1/24 dev vmbr1", "ip address add 10.1.0.1/24 dev vmbr1"],
    ),
    (
        "flooding",
        {"vmbr1": Iface("vmbr1", ports="none", options=("bridge-ageing 0",))},
        {"vmbr1": present("vmbr1")},
        ["ip link set vmbr1 type bridge ageing_time 0"],
    ),
    ("not auto", {"vmbr1": Iface("vmbr1", ports="none", auto=False)}, {}, []),
]


@pytest.mark.parametrize(
    ("wanted", "there", "commands"), [row[1:] for row in PLANS], ids=[r[0] for r in PLANS]
)
def test_plan(wanted: dict[str, Iface], there: dict[str, dict[str, object]], commands: list[str]) -> None:
    assert [" ".join(words) for words in bridges.plan(wanted, there)] == commands


def test_a_new_bridge_is_a_plain_switch_with_a_fixed_address() -> None:
    create, up, address = (" ".join(words) for words in bridges.plan(WANTED, {}))
    assert create == (
        f"ip link add vmbr1 address {bridges.bridge_mac('vmbr1')} type bridge "
        "stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time 30000"
    )
    assert up.endswith("up") and address == "ip address add 10.1.0.1/24 dev vmbr1"
    assert bridges.bridge_mac("vmbr1") != bridges.bridge_mac("vmbr0")
    assert bridges.bridge_mac("vmbr0", "pve") != bridges.bridge_mac("vmbr0", "pve2")  # they are on one wire


def test_counters_are_seen_from_the_guest() -> None:
    text = (
        "Inter-|   Receive                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
        "tap100i0:     120       2    0    0    0     0          0         0     4300      12  0 0 0 0 0 0\n"
    )
    assert links.parse_counters(text) == {"tap100i0": (4300, 120)}


def test_rate_commands_are_those_of_proxmox_ve() -> None:
    assert [" ".join(words) for words in rate.to_guest("tap100i1", "1310720bps")] == [
        "tc qdisc add dev tap100i1 root handle 1: htb default 1",
        "tc class add dev tap100i1 parent 1: classid 1:1 htb rate 1310720bps burst 1048576b",
    ]
    police = [" ".join(words) for words in rate.from_guest("tap100i1", "1310720bps")["police"]]
    assert police == [
        "tc qdisc add dev tap100i1 handle ffff: ingress",
        "tc filter add dev tap100i1 parent ffff: prio 50 basic "
        "police rate 1310720bps burst 1048576b mtu 64kb drop",
    ]
    assert list(rate.from_guest("tap1i1", "1bps"))[-1] == "shape-ifb"
    assert all(len(links.ifb_name(f"tap{vmid}i31")) <= 15 for vmid in (100, 999999999))


INSIDE = """
from pathlib import Path
from minipve.network import interfaces, bridges, links, rate
from minipve.paths import Paths
paths = Paths(Path({state!r}), Path({state!r}))
paths.interfaces.parent.mkdir(parents=True)
wanted = interfaces.default("10.9.0.1/24")
paths.interfaces.write_text(interfaces.write_interfaces(wanted))
bridges.reload(paths)
links.plug_tap("tap100i0", "vmbr0")
assert links.machine_taps(100) == ["tap100i0"], links.machine_taps(100)
first = rate.set_rate("tap100i0", 1310720)
assert first in ("police", "shape-ifb"), first
assert rate.set_rate("tap100i0", 2621440) == first
assert rate.set_rate("tap100i0", None) == "" and not links.exists("ifb100i0")
links.unplug(links.machine_taps(100))
assert sorted(links.counters("")) == ["lo", "vmbr0"], links.counters("")
bridges.reload(paths)
try:
    links.plug_tap("tap100i0", "vmbr7")
except links.MachineError as error:
    assert str(error) == "bridge 'vmbr7' does not exist"
print("fine")
"""


@pytest.mark.skipif(
    not os.access("/dev/net/tun", os.W_OK), reason="/dev/net/tun cannot be opened: no taps on this machine"
)
def test_bridges_taps_and_rates_in_a_namespace(tmp_path: Path) -> None:
    import sys

    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    code = INSIDE.format(state=str(tmp_path))
    done = subprocess.run(
        ["unshare", *user, "--net", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
