"""A link that is down for a while, against closed forms; and what a process leaves that is gone."""

from __future__ import annotations

import pytest
from dasklab.sim.kernel import Host, HungError, Kernel, VirtualLoop

from tests.unit.dasklab.sim.test_network import BIG, RATE, RTT, Lab, port

RTO = 0.2  # Linux's least; doubled each time


def cut(lab: Lab, machine: str, at_s: float, for_s: float) -> None:
    lab.kernel.at(at_s, lab.network.cut, machine, for_s)


def heard(lab: Lab, way: str) -> None:
    """A connection that has been used knows its round trip, and so its timer."""
    lab.send(way, 100, 0.0, "first")


@pytest.mark.parametrize(
    ("for_s", "again_s"), [(0.05, 0.2), (0.3, 0.6), (0.7, 1.4), (1.0, 1.4), (2.0, 3.0), (5.0, 6.2)]
)
@pytest.mark.parametrize("end", ["a", "b"])
def test_a_transfer_goes_on_when_the_timer_fires_after_the_cut(
    end: str, for_s: float, again_s: float
) -> None:
    lab = Lab()
    heard(lab, "a>b")
    lab.send("a>b", when=1.0)
    cut(lab, end, 1.04, for_s)
    # 0.04 of its 0.1 s are over; the timer fires after 1, 3, 7, 15, 31 times 0.2 s
    assert lab.run()["a>b"] == pytest.approx(1.04 + again_s + 0.06 + RTT / 2)


@pytest.mark.parametrize(("sent_s", "arrived_s"), [(0.9, 0.9), (1.1, 1.7), (1.55, 1.75)])
def test_a_small_message_waits_for_a_timer_of_its_own(sent_s: float, arrived_s: float) -> None:
    lab = Lab()
    heard(lab, "a>b")
    lab.send("a>b", 100, sent_s)
    cut(lab, "b", 1.0, 0.6)
    # 1.1: again at 1.3 and 1.7; 1.55: again at 1.75
    assert lab.run()["a>b"] == pytest.approx(arrived_s + RTT / 2, abs=1e-5)


def test_who_asks_for_a_connection_asks_again_after_one_and_three_seconds() -> None:
    lab = Lab()
    lab.send("a>b", 0, 1.0)
    cut(lab, "b", 0.5, 2.0)
    assert lab.run()["a>b"] == pytest.approx(4.0 + RTT / 2)


def test_what_was_on_its_way_is_lost_and_the_order_is_kept() -> None:
    lab = Lab(b=port(delay_s=0.1, received_delay_s=0.1))
    for number in range(10):
        lab.send("a>b", 100, 0.02 * number, str(number))
    cut(lab, "b", 0.15, 0.02)
    arrived = lab.run()
    assert lab.order == [str(number) for number in range(10)]
    # 0 to 2 were there; 3 was to arrive at 0.16: sent at 0.06, again after 2 round trips, which are 0.4 s
    assert arrived["2"] == pytest.approx(0.14, abs=1e-3)
    assert arrived["3"] == pytest.approx(0.06 + 0.4 + 0.1, abs=1e-3)


def test_others_have_the_link_for_themselves_meanwhile() -> None:
    lab = Lab()
    for way in ("a>c", "b>c"):
        lab.send(way, 100, 0.0, f"first {way}")
        lab.send(way, BIG, 1.0)
    cut(lab, "a", 1.1, 0.05)
    arrived = lab.run()
    # half of each is over at 1.1; then b alone, and from 1.3 on a alone
    assert arrived["b>c"] == pytest.approx(1.15 + RTT / 2)
    assert arrived["a>c"] == pytest.approx(1.35 + RTT / 2)


def test_a_second_cut_finds_the_timer_where_the_first_left_it() -> None:
    lab = Lab()
    heard(lab, "a>b")
    lab.send("a>b", when=1.0)
    cut(lab, "a", 1.04, 0.5)
    cut(lab, "b", 1.60, 0.3)
    # at 1.24, 1.64 and 2.44
    assert lab.run()["a>b"] == pytest.approx(2.44 + 0.06 + RTT / 2)


def test_on_a_flooding_bridge_a_cut_stops_only_who_stands_behind_it() -> None:
    lab = Lab(flooding=True)
    lab.send("a>b")
    cut(lab, "c", 0.05, 10)
    assert lab.run()["a>b"] == pytest.approx(0.1 + RTT / 2)


def test_what_was_dropped_does_not_come_and_leaves_its_share() -> None:
    lab = Lab()
    lab.send("a>b")
    lab.send("a>b", 100, 0.5, "later")
    lab.send("c>b")
    lab.kernel.at(0.1, lambda: lab.channels["a>b"].drop())
    lab.kernel.run_until(lambda: False)
    # half of it in the first 0.1 s, the rest alone
    assert lab.arrived == pytest.approx({"c>b": 0.15 + RTT / 2})


def test_a_task_that_is_forgotten_leaves_its_core_to_the_others() -> None:
    kernel = Kernel()
    host, ended = Host(kernel, cores=1), dict[str, float]()

    def done(name: str) -> None:
        ended[name] = kernel.now

    first, second = (lambda: done("first")), (lambda: done("second"))
    host.compute(1.0, first)
    host.compute(1.0, second)
    kernel.at(1.0, host.cancel, first)
    kernel.run_until(lambda: False)
    assert ended == pytest.approx({"second": 1.5})  # half of it by 1.0


def test_a_closed_loop_does_nothing_any_more() -> None:
    kernel, said = Kernel(), list[str]()
    loop = VirtualLoop.create(kernel, Host(kernel))
    loop.call_soon(said.append, "before")
    loop.call_later(1.0, said.append, "timer")
    kernel.at(0.5, loop.close)
    kernel.at(0.7, loop.call_soon, said.append, "from the network")
    kernel.run_until(lambda: False)
    assert said == ["before"]


def test_waiting_for_what_never_comes_is_a_hang() -> None:
    kernel = Kernel(limit_s=10)
    with pytest.raises(HungError):
        kernel.wait_for(lambda: False)


def test_a_shared_rate_is_whole_again() -> None:
    lab = Lab(a=port(RATE / 2))
    heard(lab, "a>b")
    lab.send("a>b", when=1.0)
    cut(lab, "a", 1.1, 0.1)
    assert lab.run()["a>b"] == pytest.approx(1.1 + RTO + 0.1 + RTT / 2)
