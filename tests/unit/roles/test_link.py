"""From what is asked of a link to tc's commands, and from tc's answer back: pure, no kernel needed."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

HOSTS = {"client": "10.77.1.11", "worker-1": "10.77.1.13", "worker-2": "10.77.1.14"}


def commands(link: ModuleType, *asked: dict[str, Any], polices: bool = True) -> list[str]:
    links = link.parse(json.dumps(list(asked)), HOSTS)
    return [" ".join(command) for command in link.plan(links, "eth1", 1500, HOSTS, polices)]


def test_a_delay_for_all_is_one_netem_at_the_root(link: ModuleType) -> None:
    assert commands(link, {"delay_ms": 50}) == [
        "tc qdisc add dev eth1 root handle da5c: netem limit 84334 delay 50ms"
    ]


def test_all_amounts_together(link: ModuleType) -> None:
    asked = {"delay_ms": 20, "jitter_ms": 2.5, "loss_pct": 0.1, "reorder_pct": 25, "rate_mbit": 100}
    assert commands(link, asked) == [
        "tc qdisc add dev eth1 root handle da5c: netem limit 1375 delay 20ms 2.5ms loss 0.1% reorder 25% "
        "rate 100000000bit"
    ]


def test_jitter_alone_keeps_frames_in_order(link: ModuleType) -> None:
    assert commands(link, {"delay_ms": 20, "jitter_ms": 5})[0].endswith("rate 10000000000bit")
    assert "rate" not in commands(link, {"delay_ms": 20, "jitter_ms": 5, "reorder_pct": 1})[0]


def test_ingress_goes_through_a_device_with_a_queue(link: ModuleType) -> None:
    assert commands(link, {"loss_pct": 1, "direction": "ingress"}) == [
        "tc qdisc add dev eth1 clsact",
        "ip link add dasklab-in type ifb",
        "ip link set dev dasklab-in up",
        "tc filter add dev eth1 ingress prio 100 protocol all u32 match u32 0 0 "
        "action mirred egress redirect dev dasklab-in",
        "tc qdisc add dev dasklab-in root handle da5c: netem limit 1000 loss 1%",
    ]


def test_peers_get_bands_and_the_rest_has_its_own(link: ModuleType) -> None:
    assert commands(link, {"delay_ms": 50, "peer": "worker-2"}, {"loss_pct": 1}) == [
        "tc qdisc add dev eth1 root handle da5c: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        "tc qdisc add dev eth1 parent da5c:1 netem limit 1000 loss 1%",
        "tc qdisc add dev eth1 parent da5c:2 netem limit 84334 delay 50ms",
        "tc filter add dev eth1 parent da5c: prio 1 protocol ip u32 match ip dst 10.77.1.14/32 flowid da5c:2",
    ]


def test_without_a_link_for_the_rest_band_1_stays_clear(link: ModuleType) -> None:
    told = commands(link, {"delay_ms": 1, "peer": "worker-1"})
    assert told[0].startswith("tc qdisc add dev eth1 root handle da5c: prio bands 2 ")
    assert told[1].startswith("tc qdisc add dev eth1 parent da5c:2 netem")
    assert len(told) == 3


def test_a_policer_has_no_queue(link: ModuleType) -> None:
    police = "action police rate 100000000bit burst 131072b mtu 65536b conform-exceed drop/continue"
    assert commands(link, {"rate_mbit": 100, "policer": True, "direction": "both"}) == [
        "tc qdisc add dev eth1 clsact",
        f"tc filter add dev eth1 egress prio 1 protocol all u32 match u32 0 0 {police}",
        f"tc filter add dev eth1 ingress prio 1 protocol all u32 match u32 0 0 {police}",
    ]


def test_a_policer_with_a_delay_leaves_the_rate_out_of_netem(link: ModuleType) -> None:
    told = commands(link, {"rate_mbit": 100, "policer": True, "delay_ms": 10})
    assert told[0] == "tc qdisc add dev eth1 root handle da5c: netem limit 1167 delay 10ms"


def test_a_rate_by_itself_needs_no_netem(link: ModuleType) -> None:
    assert commands(link, {"rate_mbit": 1000, "direction": "both"}) == [
        "tc qdisc add dev eth1 root handle da5c: tbf rate 1000000000bit burst 1250000b limit 2750000",
        "tc qdisc add dev eth1 clsact",
        "ip link add dasklab-in type ifb",
        "ip link set dev dasklab-in up",
        "tc filter add dev eth1 ingress prio 100 protocol all u32 match u32 0 0 "
        "action mirred egress redirect dev dasklab-in",
        "tc qdisc add dev dasklab-in root handle da5c: tbf rate 1000000000bit burst 1250000b limit 2750000",
    ]


def test_without_policers_in_the_kernel_a_bucket_has_no_room_to_wait_in(link: ModuleType) -> None:
    assert commands(link, {"rate_mbit": 100, "policer": True, "peer": "worker-2"}, polices=False)[1:] == [
        "tc qdisc add dev eth1 parent da5c:2 tbf rate 100000000bit burst 131072b limit 70000",
        "tc filter add dev eth1 parent da5c: prio 1 protocol ip u32 match ip dst 10.77.1.14/32 flowid da5c:2",
    ]
    with pytest.raises(link.UnsupportedError, match="act_police"):
        commands(link, {"rate_mbit": 100, "policer": True, "delay_ms": 10}, polices=False)


@pytest.mark.parametrize(("room", "policer"), [({"limit": 70_000}, True), ({"lat": 12_000}, False)])
def test_a_bucket_is_read_back_as_what_it_does(link: ModuleType, room: dict[str, int], policer: bool) -> None:
    """The answer of iproute2 6.1 on Linux 6.18."""
    options = {"rate": 12_500_000, "burst": 131_072, **room}
    tbf = {"kind": "tbf", "root": True, "options": options, "packets": 5, "bytes": 500, "drops": 1}
    [found] = link.impairing([tbf], "", HOSTS, "egress")
    assert (found["by"], found["policer"], found["rate_mbit"], found["delay_ms"]) == ("tbf", policer, 100, 0)


@pytest.mark.parametrize("asked", [[], {}, {"delay_ms": 0}, {"direction": "both"}, {"peer": "worker-1"}])
def test_nothing_asked_is_nothing_done(link: ModuleType, asked: Any) -> None:
    assert link.parse(json.dumps(asked), HOSTS) == []
    assert link.plan([], "eth1", 1500, HOSTS) == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"delay": 5}, "unknown key delay"),
        ({"delay_ms": 5, "peer": "worker-9"}, "no peer 'worker-9'; there are: client, worker-1, worker-2"),
        ({"delay_ms": 5, "direction": "up"}, "direction is one of egress, ingress, both, not 'up'"),
        ({"loss_pct": 101}, "loss_pct is from 0 to 100, but 101 was given"),
        ({"rate_mbit": -1}, "rate_mbit is not negative, but -1 was given"),
        ({"jitter_ms": 5}, "jitter_ms needs a delay_ms above 0"),
        (
            [{"delay_ms": 5}, {"loss_pct": 1, "direction": "both"}],
            "two links for the same direction and peer",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_touched(link: ModuleType, asked: Any, told: str) -> None:
    with pytest.raises(link.HostError, match=told):
        link.parse(json.dumps(asked), HOSTS)


def test_sixteen_peers_are_too_many(link: ModuleType) -> None:
    hosts = {f"worker-{i}": f"10.77.1.{i}" for i in range(1, 17)}
    links = link.parse(json.dumps([{"delay_ms": 1, "peer": name} for name in hosts]), hosts)
    with pytest.raises(link.HostError, match="at most 15 peers"):
        link.plan(links, "eth1", 1500, hosts)


def test_the_limit_holds_twice_the_bandwidth_delay_product(link: ModuleType) -> None:
    full = link.complete({"delay_ms": 200, "rate_mbit": 30}, HOSTS)
    assert link.limit(full, 1500) == 1000 + 2 * 30e6 / 8 * 0.2 / 1500


def test_what_tc_says_is_told_in_the_words_of_what_was_asked(link: ModuleType) -> None:
    """The answer of iproute2 6.1 on Linux 6.1 to delay 50 ms for one peer and loss for the rest."""
    counters = {"packets": 7, "bytes": 700, "drops": 1}
    delay = {"delay": 0.05, "jitter": 0, "correlation": 0}
    egress = [
        {"kind": "prio", "handle": "da5c:", "root": True},
        {
            "kind": "netem",
            "handle": "8002:",
            "parent": "da5c:1",
            "options": {"limit": 1000, "loss-random": {"loss": 0.025, "correlation": 0}},
            **counters,
        },
        {
            "kind": "netem",
            "handle": "8003:",
            "parent": "da5c:2",
            "options": {"limit": 84334, "delay": delay, "rate": {"rate": 12_500_000}},
            **counters,
        },
    ]
    filters = (
        "filter protocol ip pref 1 u32 chain 0 \n"
        "filter protocol ip pref 1 u32 chain 0 fh 800: ht divisor 1 \n"
        "filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid da5c:2 "
        "not_in_hw \n"
        "  match 0a4d010e/ffffffff at 16\n"
    )
    found = link.impairing(egress, filters, HOSTS, "egress")
    assert [(each["peer"], each["delay_ms"], each["loss_pct"], each["rate_mbit"]) for each in found] == [
        (None, 0, 2.5, 0),
        ("worker-2", 50, 0, 100),
    ]
    assert [(each["direction"], each["by"], each["policer"]) for each in found] == [
        ("egress", "netem", False),
        ("egress", "netem", False),
    ]


def test_a_policer_is_read_back_with_its_peer(link: ModuleType) -> None:
    """The answer of iproute2 6.1, which tells a policer's rate in no JSON."""
    head = "filter protocol ip pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 not_in_hw \n"
    police = "\taction order 1:  police 0x1 rate {} burst 128Kb mtu 64Kb action drop/continue overhead 0b \n"
    for rate, rate_mbit in (("100Mbit", 100), ("33300Kbit", 33.3), ("2500Mbit", 2500), ("1Gbit", 1000)):
        told = f"{head}  match 0a4d010d/ffffffff at 12\n{police.format(rate)}\tref 1 bind 1 \n"
        found = link.policers(told, HOSTS, "ingress")
        assert [(each["peer"], each["policer"], each["rate_mbit"]) for each in found] == [
            ("worker-1", True, rate_mbit)
        ]
    everybody = f"{head}  match 00000000/00000000 at 0\n{police.format('1Mbit')}"
    assert link.policers(everybody, HOSTS, "egress")[0]["peer"] is None


def test_a_filter_on_something_else_is_no_peer_of_the_lab(link: ModuleType) -> None:
    told = (
        "filter protocol ip pref 1 u32 chain 0 fh 800::800 flowid da5c:2 \n  match 0a4d010d/ffffff00 at 12\n"
    )
    netem = {
        "kind": "netem",
        "parent": "da5c:2",
        "options": {"limit": 1},
        "packets": 0,
        "bytes": 0,
        "drops": 0,
    }
    assert link.impairing([netem], told, HOSTS, "egress")[0]["peer"] == "0a4d010d/ffffff00 at 12"


def test_an_impairment_that_is_gone_is_not_told(link: ModuleType) -> None:
    assert link.impairing([{"kind": "fq_codel", "handle": "0:", "root": True}], "", HOSTS, "egress") == []


def test_what_a_kernel_cannot_do_is_told_apart_from_a_failure(
    link: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: str) -> Any:
        def run(argv: list[str]) -> str:
            raise link.HostError(f"{' '.join(argv)}: {words}")

        return run

    monkeypatch.setattr(link, "run", fail("Error: Specified qdisc kind is unknown."))
    with pytest.raises(link.UnsupportedError):
        link.execute(["tc", "qdisc"])
    monkeypatch.setattr(link, "run", fail("Error: Exclusivity flag on, cannot modify."))
    with pytest.raises(link.HostError) as caught:
        link.execute(["tc", "qdisc"])
    assert not isinstance(caught.value, link.UnsupportedError)
