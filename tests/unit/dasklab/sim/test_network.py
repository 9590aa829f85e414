"""The network model against closed forms: what can be computed with a pencil."""

from __future__ import annotations

import math

import pytest
from dasklab.sim.kernel import Kernel
from dasklab.sim.network import Channel, Network, Port, Rack
from dasklab.sim.network.fluid import Pipe

RATE = 125e6  # 1 Gbit/s
BIG = 12_500_000  # a tenth of a second at it
RTT = 2e-4


def port(rate: float = RATE, down: float | None = None, **more: object) -> Port:
    return Port(Pipe(rate), Pipe(rate if down is None else down), **more)


class Lab:
    """Machines a, b, c, d; what is sent is told with the time at which it arrived."""

    def __init__(self, flooding: bool = False, exact: int = 128, seed: int = 0, **ports: Port) -> None:
        self.kernel = Kernel(seed)
        ports = {name: port() for name in "abcd"} | ports
        self.network = Network(self.kernel, ports, RTT, flooding)
        self.network.fluid._exact_flows = exact
        self.channels: dict[str, Channel] = {}
        self.arrived: dict[str, float] = {}
        self.order: list[str] = []
        self.sent = 0

    def send(
        self, way: str, nbytes: int = BIG, when: float = 0.0, label: str = "", pace: float = math.inf
    ) -> None:
        source, target = way.split(">")
        channel = self.channels.setdefault(way, Channel(self.network, source, target))
        self.sent += 1
        channel.send(when, nbytes, lambda: self._arrive(label or way), pace)

    def _arrive(self, label: str) -> None:
        self.order.append(label)
        self.arrived[label] = self.kernel.now

    def run(self) -> dict[str, float]:
        assert self.kernel.run_until(lambda: len(self.order) == self.sent)
        return self.arrived


def test_one_flow_has_the_link_for_itself() -> None:
    lab = Lab()
    lab.send("a>b")
    assert lab.run() == pytest.approx({"a>b": 0.1 + RTT / 2})
    assert lab.network.sent_bytes == BIG


@pytest.mark.parametrize("nbytes", [BIG, 8000])
def test_a_message_leaves_while_it_is_written(nbytes: int) -> None:
    slow, fast = Lab(), Lab()
    slow.send("a>b", nbytes, pace=BIG / 0.4)
    fast.send("a>b", nbytes, pace=BIG / 0.01)
    assert slow.run() == pytest.approx({"a>b": 0.4 * nbytes / BIG + RTT / 2})
    assert fast.run() == pytest.approx({"a>b": 0.1 * nbytes / BIG + RTT / 2})


@pytest.mark.parametrize("ways", [("a>b", "a>c"), ("a>c", "b>c")])
@pytest.mark.parametrize("exact", [128, 0])
def test_two_flows_share_what_both_need(ways: tuple[str, str], exact: int) -> None:
    lab = Lab(exact=exact)
    lab.send(ways[0])
    lab.send(ways[1], BIG // 2)
    # at half the rate the smaller takes 0.1 s; by then half of the larger is left, alone: 0.05 s
    assert lab.run() == pytest.approx({ways[0]: 0.15 + RTT / 2, ways[1]: 0.1 + RTT / 2})


def test_a_token_bucket_lets_its_burst_through_at_once_and_fills_in_pauses() -> None:
    burst = BIG / 5
    lab = Lab(a=Port(Pipe(RATE, burst), Pipe(RATE)), b=Port(Pipe(RATE), Pipe(RATE, burst)))
    lab.send("a>b", label="first")
    lab.send("a>b", when=1.0, label="after a pause")
    lab.send("a>b", when=1.08, label="at once after it")
    arrived = lab.run()
    assert arrived["first"] == pytest.approx(0.08 + RTT / 2)
    assert arrived["after a pause"] == pytest.approx(1.08 + RTT / 2)
    assert arrived["at once after it"] == pytest.approx(1.18 + RTT / 2)


def test_both_directions_are_links_of_their_own() -> None:
    lab = Lab()
    lab.send("a>b")
    lab.send("b>a")
    assert lab.run() == pytest.approx({"a>b": 0.1 + RTT / 2, "b>a": 0.1 + RTT / 2})


def test_the_cap_of_a_direction_holds_in_that_one() -> None:
    lab = Lab(a=port(RATE / 4, RATE / 2))
    lab.send("a>b")
    lab.send("c>a")
    assert lab.run() == pytest.approx({"a>b": 0.4 + RTT / 2, "c>a": 0.2 + RTT / 2})


def test_what_one_flow_cannot_use_the_other_gets() -> None:
    lab = Lab(a=port(RATE / 4))
    lab.send("a>c")
    lab.send("b>c", BIG * 3)
    # max-min at c: a 1/4, b 3/4; equal shares would give b a half
    assert lab.run() == pytest.approx({"a>c": 0.4 + RTT / 2, "b>c": 0.4 + RTT / 2})


def test_a_ping_waits_behind_the_queue_of_each_full_link() -> None:
    lab = Lab(**{name: port(queue_bytes=125_000) for name in "abc"})
    lab.send("c>b", 1000, 0.2, "empty")
    lab.send("a>b", when=1.0)
    lab.send("c>b", 1000, 1.02, "one queue")  # b's way in
    lab.send("c>a", 1000, 1.02, "other way")
    arrived = lab.run()
    alone = 1000 / RATE + RTT / 2
    assert arrived["empty"] - 0.2 == pytest.approx(alone)
    assert arrived["one queue"] - 1.02 == pytest.approx(alone + 1e-3)
    assert arrived["other way"] - 1.02 == pytest.approx(alone)


def test_messages_of_a_connection_stay_in_order_whatever_the_jitter() -> None:
    lab = Lab(a=port(delay_s=0.01, jitter_s=0.009))
    for number in range(200):
        lab.send("a>b", 100, number * 1e-4, str(number))
    lab.send("a>b", BIG, 0.01, "bulk")
    lab.run()
    numbered = [label for label in lab.order if label != "bulk"]
    assert numbered == [str(number) for number in range(200)]
    ways = [lab.arrived["0"], lab.arrived["199"] - 199e-4]
    assert all(way >= RTT / 2 + 1e-3 for way in ways)


def test_a_small_message_waits_for_the_large_one_before_it() -> None:
    lab = Lab()
    lab.send("a>b")
    lab.send("a>b", 100, 0.01, "after")
    arrived = lab.run()
    assert arrived["after"] >= arrived["a>b"]


def test_on_a_learning_bridge_pairs_do_not_meet_on_a_flooding_one_they_share_every_port() -> None:
    learning, flooding = Lab(), Lab(flooding=True)
    for lab in (learning, flooding):
        lab.send("a>b")
        lab.send("c>d")
    assert learning.run() == pytest.approx({"a>b": 0.1 + RTT / 2, "c>d": 0.1 + RTT / 2})
    assert flooding.run() == pytest.approx({"a>b": 0.2 + RTT / 2, "c>d": 0.2 + RTT / 2})


def test_all_to_all_on_a_flooding_bridge_each_port_pays_for_all_but_its_own() -> None:
    workers = "abc"
    pairs = [f"{a}>{b}" for a in workers for b in workers if a != b]
    learning, flooding = Lab(), Lab(flooding=True)
    for lab in (learning, flooding):
        for pair in pairs:
            lab.send(pair)
    # learning: 2 flows into each port; flooding: 4, of both others to both of their peers
    assert learning.run() == pytest.approx(dict.fromkeys(pairs, 0.2 + RTT / 2))
    assert flooding.run() == pytest.approx(dict.fromkeys(pairs, 0.4 + RTT / 2))


def test_a_slow_port_does_not_hold_back_what_is_flooded_past_it() -> None:
    lab = Lab(flooding=True, d=port(RATE / 100))
    lab.send("a>b")
    assert lab.run() == pytest.approx({"a>b": 0.1 + RTT / 2})


def test_what_is_flooded_to_a_slow_port_stands_before_it_and_drains() -> None:
    lab = Lab(flooding=True, d=port(RATE / 4))
    lab.send("a>b")
    for when, label in ((0.04, "while it grows"), (0.3, "while it drains"), (0.5, "empty")):
        lab.send("c>d", 100, when, label)
    arrived = lab.run()
    alone = 100 / (RATE / 4) + RTT / 2
    # 3/4 of the rate does not fit: 0.03 s of it at 0.04 s, for which the port takes four times as long
    assert arrived["while it grows"] - 0.04 == pytest.approx(alone + 0.12)
    # 0.075 s of it at the end, at 0.1 s; a quarter of 0.2 s has left since
    assert arrived["while it drains"] - 0.3 == pytest.approx(alone + 0.1)
    assert arrived["empty"] - 0.5 == pytest.approx(alone)
    assert arrived["a>b"] == pytest.approx(0.1 + RTT / 2)


def test_racks_share_their_way_out_and_only_that() -> None:
    rack = Rack(Pipe(RATE / 2), Pipe(RATE / 2), delay_s=1e-4)
    lab = Lab(a=port(rack=rack), b=port(rack=rack))
    lab.send("a>b")
    assert lab.run() == pytest.approx({"a>b": 0.1 + RTT / 2})
    lab = Lab(a=port(rack=rack), b=port(rack=rack))
    lab.send("a>c")
    lab.send("b>d")
    assert lab.run() == pytest.approx({"a>c": 0.4 + RTT / 2 + 1e-4, "b>d": 0.4 + RTT / 2 + 1e-4})


def test_loss_bounds_the_rate_as_mathis_says() -> None:
    lab = Lab(a=port(delay_s=0.0049, loss=0.01))
    lab.send("a>b", BIG)
    rtt = RTT + 0.0049
    rate = 1448 / rtt * math.sqrt(1.5 / 0.01)
    # less what slow start has sent by then, at a window a round trip
    rounds = math.ceil(math.log2(RATE * rtt / 14_480 + 1)) - 1
    left = BIG - (2**rounds - 1) * 14_480
    assert lab.run()["a>b"] == pytest.approx(rounds * rtt + left / rate + RTT / 2 + 0.0049)


def test_a_lost_segment_of_a_short_message_waits_for_the_timer_as_often_as_it_is_lost() -> None:
    lab = Lab(a=port(loss=0.05))
    for number in range(1000):
        lab.send("a>b", 100, number * 1.0, str(number))
    arrived = lab.run()
    late = sum(arrived[str(number)] - number > 0.2 for number in range(1000))
    assert 30 <= late <= 72  # 50, and three standard deviations


def test_slow_start_costs_round_trips() -> None:
    lab = Lab(a=port(delay_s=0.05))
    nbytes = 14_480 * 7  # three windows: 1 + 2 + 4
    lab.send("a>b", nbytes)
    rtt = RTT + 0.05
    assert lab.run()["a>b"] == pytest.approx(2 * rtt + 4 * 14_480 / RATE + RTT / 2 + 0.05)
