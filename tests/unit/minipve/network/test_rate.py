"""The commands of a rate cap."""

from __future__ import annotations

from minipve.network import guest_ports, links


def test_rate_commands_equal_proxmox_ves() -> None:
    assert [" ".join(words) for words in guest_ports.to_guest("tap100i1", "1310720bps")] == [
        "tc qdisc add dev tap100i1 root handle 1: htb default 1",
        "tc class add dev tap100i1 parent 1: classid 1:1 htb rate 1310720bps burst 1048576b",
    ]
    police = [" ".join(words) for words in guest_ports.from_guest("tap100i1", "1310720bps")["police"]]
    assert police == [
        "tc qdisc add dev tap100i1 handle ffff: ingress",
        "tc filter add dev tap100i1 parent ffff: prio 50 basic "
        "police rate 1310720bps burst 1048576b mtu 64kb drop",
    ]
    assert list(guest_ports.from_guest("tap1i1", "1bps"))[-1] == "shape-ifb"
    assert all(len(links.ifb_name(f"tap{vmid}i31")) <= 15 for vmid in (100, 999999999))
