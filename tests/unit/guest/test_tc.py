"""From requested links to tc's commands, and from tc's output back. No kernel is needed."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab_guest import tc
from dasklab_guest.common import HostError, UnsupportedError

HOSTS = {"client": "10.77.1.11", "worker-1": "10.77.1.13", "worker-2": "10.77.1.14"}


def commands(*links: dict[str, Any], polices: bool = True) -> list[str]:
    complete = tc.complete_links(links, HOSTS)
    return [" ".join(command) for command in tc.plan(complete, "eth1", 1500, HOSTS, polices)]


def test_delay_for_all_frames_is_one_netem_at_the_root() -> None:
    assert commands({"delay_ms": 50}) == [
        "tc qdisc add dev eth1 root handle da5c: netem limit 84334 delay 50ms"
    ]


def test_all_impairments_are_one_netem() -> None:
    link = {"delay_ms": 20, "jitter_ms": 2.5, "loss_pct": 0.1, "reorder_pct": 25, "rate_mbit": 100}
    assert commands(link) == [
        "tc qdisc add dev eth1 root handle da5c: netem limit 1375 delay 20ms 2.5ms loss 0.1% reorder 25% "
        "rate 100000000bit"
    ]


def test_jitter_alone_keeps_frames_in_order() -> None:
    assert commands({"delay_ms": 20, "jitter_ms": 5})[0].endswith("rate 10000000000bit")
    assert "rate" not in commands({"delay_ms": 20, "jitter_ms": 5, "reorder_pct": 1})[0]


def test_arriving_frames_pass_a_device_with_a_queue() -> None:
    assert commands({"loss_pct": 1, "direction": "ingress"}) == [
        "tc qdisc add dev eth1 clsact",
        "ip link add dasklab-in type ifb",
        "ip link set dev dasklab-in up",
        "tc filter add dev eth1 ingress prio 100 protocol all u32 match u32 0 0 "
        "action mirred egress redirect dev dasklab-in",
        "tc qdisc add dev dasklab-in root handle da5c: netem limit 1000 loss 1%",
    ]


def test_peers_have_bands_of_their_own() -> None:
    assert commands({"delay_ms": 50, "peer": "worker-2"}, {"loss_pct": 1}) == [
        "tc qdisc add dev eth1 root handle da5c: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        "tc qdisc add dev eth1 parent da5c:1 netem limit 1000 loss 1%",
        "tc qdisc add dev eth1 parent da5c:2 netem limit 84334 delay 50ms",
        "tc filter add dev eth1 parent da5c: prio 1 protocol ip u32 match ip dst 10.77.1.14/32 flowid da5c:2",
    ]


def test_without_a_link_for_the_rest_band_1_stays_clear() -> None:
    lines = commands({"delay_ms": 1, "peer": "worker-1"})
    assert lines[0].startswith("tc qdisc add dev eth1 root handle da5c: prio bands 2 ")
    assert lines[1].startswith("tc qdisc add dev eth1 parent da5c:2 netem")
    assert len(lines) == 3


def test_policer_has_no_queue() -> None:
    police = "action police rate 100000000bit burst 131072b mtu 65536b conform-exceed drop/continue"
    assert commands({"rate_mbit": 100, "policer": True, "direction": "both"}) == [
        "tc qdisc add dev eth1 clsact",
        f"tc filter add dev eth1 egress prio 1 protocol all u32 match u32 0 0 {police}",
        f"tc filter add dev eth1 ingress prio 1 protocol all u32 match u32 0 0 {police}",
    ]


def test_policer_with_a_delay_leaves_the_rate_out_of_netem() -> None:
    lines = commands({"rate_mbit": 100, "policer": True, "delay_ms": 10})
    assert lines[0] == "tc qdisc add dev eth1 root handle da5c: netem limit 1167 delay 10ms"


def test_rate_alone_needs_no_netem() -> None:
    bucket = "tbf rate 1000000000bit burst 1250000b limit 2750000"
    lines = commands({"rate_mbit": 1000, "direction": "both"})
    assert lines[0] == f"tc qdisc add dev eth1 root handle da5c: {bucket}"
    assert lines[-1] == f"tc qdisc add dev dasklab-in root handle da5c: {bucket}"


def test_without_policers_in_the_kernel_a_bucket_has_no_room_to_wait_in() -> None:
    assert commands({"rate_mbit": 100, "policer": True, "peer": "worker-2"}, polices=False)[1:] == [
        "tc qdisc add dev eth1 parent da5c:2 tbf rate 100000000bit burst 131072b limit 70000",
        "tc filter add dev eth1 parent da5c: prio 1 protocol ip u32 match ip dst 10.77.1.14/32 flowid da5c:2",
    ]
    with pytest.raises(UnsupportedError, match="act_police"):
        commands({"rate_mbit": 100, "policer": True, "delay_ms": 10}, polices=False)


@pytest.mark.parametrize(
    "links", [[], [{}], [{"delay_ms": 0}], [{"direction": "both"}], [{"peer": "worker-1"}]]
)
def test_links_that_change_nothing_are_left_out(links: list[dict[str, Any]]) -> None:
    assert tc.complete_links(links, HOSTS) == []
    assert tc.plan([], "eth1", 1500, HOSTS) == []


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([{"delay": 5}], "unknown key delay"),
        ([{"delay_ms": 5, "peer": "worker-9"}], "no peer 'worker-9'; there are: client, worker-1, worker-2"),
        ([{"delay_ms": 5, "direction": "up"}], "direction is one of egress, ingress, both, not 'up'"),
        ([{"loss_pct": 101}], "loss_pct must be from 0 to 100, not 101"),
        ([{"rate_mbit": -1}], "rate_mbit must be not negative, not -1"),
        ([{"jitter_ms": 5}], "jitter_ms needs"),
        (
            [{"delay_ms": 5}, {"loss_pct": 1, "direction": "both"}],
            "two links have the same direction and peer",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_is_touched(links: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(HostError, match=message):
        tc.complete_links(links, HOSTS)


def test_sixteen_peers_are_too_many() -> None:
    hosts = {f"worker-{number}": f"10.77.1.{number}" for number in range(1, 17)}
    links = tc.complete_links([{"delay_ms": 1, "peer": name} for name in hosts], hosts)
    with pytest.raises(HostError, match="at most 15 peers"):
        tc.plan(links, "eth1", 1500, hosts)


def test_queue_holds_twice_the_bandwidth_delay_product() -> None:
    link = tc.complete({"delay_ms": 200, "rate_mbit": 30}, HOSTS)
    assert tc.limit(link, 1500) == 1000 + 2 * 30e6 / 8 * 0.2 / 1500


@pytest.mark.parametrize(("room", "policer"), [({"limit": 70_000}, True), ({"lat": 12_000}, False)])
def test_token_bucket_is_read_back_as_policer_or_cap(room: dict[str, int], policer: bool) -> None:
    """The output of iproute2 6.1 on Linux 6.18."""
    options = {"rate": 12_500_000, "burst": 131_072, **room}
    tbf = {"kind": "tbf", "root": True, "options": options, "packets": 5, "bytes": 500, "drops": 1}
    [link] = tc.configured_queues([tbf], "", HOSTS, "egress")
    assert (link["by"], link["policer"], link["rate_mbit"], link["delay_ms"]) == ("tbf", policer, 100, 0)


def test_queues_are_read_back_with_their_peers() -> None:
    """The output of iproute2 6.1 on Linux 6.1 for a delay of 50 ms to one peer and loss for the rest."""
    counters = {"packets": 7, "bytes": 700, "drops": 1}
    loss = {"limit": 1000, "loss-random": {"loss": 0.025, "correlation": 0}}
    delay = {
        "limit": 84334,
        "delay": {"delay": 0.05, "jitter": 0, "correlation": 0},
        "rate": {"rate": 12_500_000},
    }
    qdiscs = [
        {"kind": "prio", "handle": "da5c:", "root": True},
        {"kind": "netem", "handle": "8002:", "parent": "da5c:1", "options": loss, **counters},
        {"kind": "netem", "handle": "8003:", "parent": "da5c:2", "options": delay, **counters},
    ]
    filters = (
        "filter protocol ip pref 1 u32 chain 0 \n"
        "filter protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1 \n"
        "filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid da5c:2 "
        "not_in_hw \n"
        "  match 0a4d010e/ffffffff at 16\n"
    )
    links = tc.configured_queues(qdiscs, filters, HOSTS, "egress")
    assert [(link["peer"], link["delay_ms"], link["loss_pct"], link["rate_mbit"]) for link in links] == [
        (None, 0, 2.5, 0),
        ("worker-2", 50, 0, 100),
    ]
    assert {(link["direction"], link["by"], link["policer"]) for link in links} == {
        ("egress", "netem", False)
    }


@pytest.mark.parametrize(
    ("rate", "rate_mbit"), [("100Mbit", 100), ("33300Kbit", 33.3), ("2500Mbit", 2500), ("1Gbit", 1000)]
)
def test_policer_is_read_back_with_its_peer(rate: str, rate_mbit: float) -> None:
    """iproute2 6.1 prints a policer's rate as text only."""
    head = "filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 not_in_hw \n"
    police = (
        f"\taction order 1:  police 0x1 rate {rate} burst 128Kb mtu 64Kb action drop/continue overhead 0b \n"
    )
    for match, peer in (("0a4d010d/ffffffff at 12", "worker-1"), ("00000000/00000000 at 0", None)):
        [link] = tc.configured_policers(f"{head}  match {match}\n{police}\tref 1 bind 1 \n", HOSTS, "ingress")
        assert (link["peer"], link["policer"], link["rate_mbit"]) == (peer, True, rate_mbit)


def test_filter_on_a_subnet_is_no_peer() -> None:
    text = (
        "filter protocol ip pref 1 u32 chain 0 fh 800::800 flowid da5c:2 \n  match 0a4d010d/ffffff00 at 12\n"
    )
    counters = {"packets": 0, "bytes": 0, "drops": 0}
    netem = {"kind": "netem", "parent": "da5c:2", "options": {"limit": 1}, **counters}
    assert tc.configured_queues([netem], text, HOSTS, "egress")[0]["peer"] == "0a4d010d/ffffff00 at 12"


def test_plain_queue_is_no_impairment() -> None:
    assert (
        tc.configured_queues([{"kind": "fq_codel", "handle": "0:", "root": True}], "", HOSTS, "egress") == []
    )
