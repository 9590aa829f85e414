"""The network model against closed forms."""

from __future__ import annotations

import math

import pytest
from dasklab.sim.network import Port, Rack
from dasklab.sim.network.fluid import Pipe

from tests.unit.dasklab.sim.machines import BIG, RATE, RTT, Machines, port

# --- shares ------------------------------------------------------------------------------------------------


def test_single_flow_has_the_whole_link() -> None:
    machines = Machines()
    machines.send("a>b")
    assert machines.run() == pytest.approx({"a>b": 0.1 + RTT / 2})
    assert machines.network.sent_bytes == BIG


@pytest.mark.parametrize("nbytes", [BIG, 8000])
def test_message_leaves_while_it_is_written(nbytes: int) -> None:
    slow, fast = Machines(), Machines()
    slow.send("a>b", nbytes, pace=BIG / 0.4)
    fast.send("a>b", nbytes, pace=BIG / 0.01)
    assert slow.run() == pytest.approx({"a>b": 0.4 * nbytes / BIG + RTT / 2})
    assert fast.run() == pytest.approx({"a>b": 0.1 * nbytes / BIG + RTT / 2})


@pytest.mark.parametrize("paths", [("a>b", "a>c"), ("a>c", "b>c")])
@pytest.mark.parametrize("exact_flows", [128, 0])
def test_two_flows_share_a_link(paths: tuple[str, str], exact_flows: int) -> None:
    machines = Machines(exact_flows=exact_flows)
    machines.send(paths[0])
    machines.send(paths[1], BIG // 2)
    # At half the rate the smaller one takes 0.1 s; the other half of the larger one takes 0.05 s alone
    assert machines.run() == pytest.approx({paths[0]: 0.15 + RTT / 2, paths[1]: 0.1 + RTT / 2})


def test_token_bucket_passes_its_burst_at_once_and_fills_in_pauses() -> None:
    burst = BIG / 5
    limited = {"a": Port(Pipe(RATE, burst), Pipe(RATE)), "b": Port(Pipe(RATE), Pipe(RATE, burst))}
    machines = Machines(**limited)
    machines.send("a>b", label="first")
    machines.send("a>b", when=1.0, label="after a pause")
    machines.send("a>b", when=1.08, label="at once after it")
    arrived = machines.run()
    assert arrived["first"] == pytest.approx(0.08 + RTT / 2)
    assert arrived["after a pause"] == pytest.approx(1.08 + RTT / 2)
    assert arrived["at once after it"] == pytest.approx(1.18 + RTT / 2)


def test_directions_do_not_share_capacity() -> None:
    machines = Machines()
    machines.send("a>b")
    machines.send("b>a")
    assert machines.run() == pytest.approx({"a>b": 0.1 + RTT / 2, "b>a": 0.1 + RTT / 2})


def test_each_direction_has_its_own_rate() -> None:
    machines = Machines(a=port(RATE / 4, RATE / 2))
    machines.send("a>b")
    machines.send("c>a")
    assert machines.run() == pytest.approx({"a>b": 0.4 + RTT / 2, "c>a": 0.2 + RTT / 2})


def test_flow_gets_what_another_cannot_use() -> None:
    machines = Machines(a=port(RATE / 4))
    machines.send("a>c")
    machines.send("b>c", BIG * 3)
    # Max-min at c: a has 1/4, b 3/4. With equal shares b would have 1/2.
    assert machines.run() == pytest.approx({"a>c": 0.4 + RTT / 2, "b>c": 0.4 + RTT / 2})


# --- small messages ----------------------------------------------------------------------------------------


def test_ping_waits_behind_the_queue_of_each_saturated_link() -> None:
    machines = Machines(**{name: port(queue_bytes=125_000) for name in "abc"})
    machines.send("c>b", 1000, 0.2, "idle")
    machines.send("a>b", when=1.0)
    machines.send("c>b", 1000, 1.02, "saturated")  # b's link, incoming
    machines.send("c>a", 1000, 1.02, "other direction")
    arrived = machines.run()
    alone = 1000 / RATE + RTT / 2
    assert arrived["idle"] - 0.2 == pytest.approx(alone)
    assert arrived["saturated"] - 1.02 == pytest.approx(alone + 1e-3)
    assert arrived["other direction"] - 1.02 == pytest.approx(alone)


def test_messages_of_a_connection_stay_in_order_whatever_the_jitter() -> None:
    machines = Machines(a=port(delay_s=0.01, jitter_s=0.009))
    for number in range(200):
        machines.send("a>b", 100, number * 1e-4, str(number))
    machines.send("a>b", BIG, 0.01, "bulk")
    machines.run()
    numbered = [label for label in machines.order if label != "bulk"]
    assert numbered == [str(number) for number in range(200)]
    delays = [machines.arrived["0"], machines.arrived["199"] - 199e-4]
    assert all(delay >= RTT / 2 + 1e-3 for delay in delays)


def test_small_message_waits_for_the_large_one_before_it() -> None:
    machines = Machines()
    machines.send("a>b")
    machines.send("a>b", 100, 0.01, "after")
    arrived = machines.run()
    assert arrived["after"] >= arrived["a>b"]


# --- flooding bridge ---------------------------------------------------------------------------------------


def test_pairs_share_ports_on_a_flooding_bridge_only() -> None:
    learning, flooding = Machines(), Machines(flooding=True)
    for machines in (learning, flooding):
        machines.send("a>b")
        machines.send("c>d")
    assert learning.run() == pytest.approx({"a>b": 0.1 + RTT / 2, "c>d": 0.1 + RTT / 2})
    assert flooding.run() == pytest.approx({"a>b": 0.2 + RTT / 2, "c>d": 0.2 + RTT / 2})


def test_each_port_carries_all_traffic_but_its_own_on_a_flooding_bridge() -> None:
    pairs = [f"{source}>{target}" for source in "abc" for target in "abc" if source != target]
    learning, flooding = Machines(), Machines(flooding=True)
    for machines in (learning, flooding):
        for pair in pairs:
            machines.send(pair)
    # Learning: 2 flows into each port. Flooding: 4, from both other machines to both of their peers.
    assert learning.run() == pytest.approx(dict.fromkeys(pairs, 0.2 + RTT / 2))
    assert flooding.run() == pytest.approx(dict.fromkeys(pairs, 0.4 + RTT / 2))


def test_slow_port_does_not_slow_down_what_is_flooded_to_it() -> None:
    machines = Machines(flooding=True, d=port(RATE / 100))
    machines.send("a>b")
    assert machines.run() == pytest.approx({"a>b": 0.1 + RTT / 2})


def test_flooded_bytes_queue_in_front_of_a_slow_port_and_drain() -> None:
    machines = Machines(flooding=True, d=port(RATE / 4))
    machines.send("a>b")
    for when, label in ((0.04, "growing"), (0.3, "draining"), (0.5, "empty")):
        machines.send("c>d", 100, when, label)
    arrived = machines.run()
    alone = 100 / (RATE / 4) + RTT / 2
    # 3/4 of the rate does not fit. At 0.04 s that is what a takes 0.03 s to send, and d x 4 as long to
    # receive.
    assert arrived["growing"] - 0.04 == pytest.approx(alone + 0.12)
    # At the end, at 0.1 s, it is 0.075 s of sending; 1/4 of the next 0.2 s has drained
    assert arrived["draining"] - 0.3 == pytest.approx(alone + 0.1)
    assert arrived["empty"] - 0.5 == pytest.approx(alone)
    assert arrived["a>b"] == pytest.approx(0.1 + RTT / 2)


# --- racks, loss, slow start -------------------------------------------------------------------------------


def test_machines_of_a_rack_share_its_uplink_and_nothing_else() -> None:
    rack = Rack(Pipe(RATE / 2), Pipe(RATE / 2), delay_s=1e-4)
    inside = Machines(a=port(rack=rack), b=port(rack=rack))
    inside.send("a>b")
    assert inside.run() == pytest.approx({"a>b": 0.1 + RTT / 2})
    out = Machines(a=port(rack=rack), b=port(rack=rack))
    out.send("a>c")
    out.send("b>d")
    assert out.run() == pytest.approx({"a>c": 0.4 + RTT / 2 + 1e-4, "b>d": 0.4 + RTT / 2 + 1e-4})


def test_loss_bounds_the_rate_by_mathis_formula() -> None:
    machines = Machines(a=port(delay_s=0.0049, loss=0.01))
    machines.send("a>b", BIG)
    rtt = RTT + 0.0049
    rate = 1448 / rtt * math.sqrt(1.5 / 0.01)
    # Slow start has sent some of it, at a window per round trip
    rounds = math.ceil(math.log2(RATE * rtt / 14_480 + 1)) - 1
    remaining = BIG - (2**rounds - 1) * 14_480
    assert machines.run()["a>b"] == pytest.approx(rounds * rtt + remaining / rate + RTT / 2 + 0.0049)


def test_short_message_waits_for_the_timer_as_often_as_it_is_lost() -> None:
    machines = Machines(a=port(loss=0.05))
    for number in range(1000):
        machines.send("a>b", 100, number * 1.0, str(number))
    arrived = machines.run()
    late = sum(arrived[str(number)] - number > 0.2 for number in range(1000))
    assert 30 <= late <= 72  # 50, with three standard deviations on each side


def test_slow_start_costs_round_trips() -> None:
    machines = Machines(a=port(delay_s=0.05))
    nbytes = 14_480 * 7  # three windows: 1 + 2 + 4
    machines.send("a>b", nbytes)
    rtt = RTT + 0.05
    assert machines.run()["a>b"] == pytest.approx(2 * rtt + 4 * 14_480 / RATE + RTT / 2 + 0.05)
