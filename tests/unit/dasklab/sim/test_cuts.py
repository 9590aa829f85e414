"""A link that is down for a while, against closed forms."""

from __future__ import annotations

import pytest

from tests.unit.dasklab.sim.machines import BIG, RATE, RTT, Machines, port

RTO = 0.2  # Linux's minimum; doubled each time


def use(machines: Machines, path: str) -> None:
    """Send a message first: a connection that was used knows its round trip, and so its timer."""
    machines.send(path, 100, 0.0, f"first {path}")


@pytest.mark.parametrize(
    ("for_s", "fires_s"), [(0.05, 0.2), (0.3, 0.6), (0.7, 1.4), (1.0, 1.4), (2.0, 3.0), (5.0, 6.2)]
)
@pytest.mark.parametrize("end", ["a", "b"])
def test_transfer_resumes_when_the_timer_fires_after_the_cut(end: str, for_s: float, fires_s: float) -> None:
    machines = Machines()
    use(machines, "a>b")
    machines.send("a>b", when=1.0)
    machines.cut(end, 1.04, for_s)
    # 0.04 s of its 0.1 s are over; the timer fires after 1, 3, 7, 15, 31 times 0.2 s
    assert machines.run()["a>b"] == pytest.approx(1.04 + fires_s + 0.06 + RTT / 2)


@pytest.mark.parametrize(("sent_s", "arrived_s"), [(0.9, 0.9), (1.1, 1.7), (1.55, 1.75)])
def test_small_message_waits_for_a_timer_of_its_own(sent_s: float, arrived_s: float) -> None:
    machines = Machines()
    use(machines, "a>b")
    machines.send("a>b", 100, sent_s)
    machines.cut("b", 1.0, 0.6)
    # Sent at 1.1 s: again at 1.3 and 1.7. Sent at 1.55 s: again at 1.75.
    assert machines.run()["a>b"] == pytest.approx(arrived_s + RTT / 2, abs=1e-5)


def test_connection_request_is_repeated_after_one_and_three_seconds() -> None:
    machines = Machines()
    machines.send("a>b", 0, 1.0)
    machines.cut("b", 0.5, 2.0)
    assert machines.run()["a>b"] == pytest.approx(4.0 + RTT / 2)


def test_messages_in_flight_are_lost_and_the_order_is_kept() -> None:
    machines = Machines(b=port(delay_s=0.1, received_delay_s=0.1))
    for number in range(10):
        machines.send("a>b", 100, 0.02 * number, str(number))
    machines.cut("b", 0.15, 0.02)
    arrived = machines.run()
    assert machines.order == [str(number) for number in range(10)]
    # 0 to 2 have arrived. 3 would arrive at 0.16 s: it left at 0.06 s and leaves again 2 round trips later.
    assert arrived["2"] == pytest.approx(0.14, abs=1e-3)
    assert arrived["3"] == pytest.approx(0.06 + 0.4 + 0.1, abs=1e-3)


def test_other_flows_have_the_whole_link_during_the_cut() -> None:
    machines = Machines()
    for path in ("a>c", "b>c"):
        use(machines, path)
        machines.send(path, BIG, 1.0)
    machines.cut("a", 1.1, 0.05)
    arrived = machines.run()
    # Half of each has left at 1.1 s; then b sends alone, and from 1.3 s on a alone
    assert arrived["b>c"] == pytest.approx(1.15 + RTT / 2)
    assert arrived["a>c"] == pytest.approx(1.35 + RTT / 2)


def test_second_cut_meets_the_timer_that_the_first_started() -> None:
    machines = Machines()
    use(machines, "a>b")
    machines.send("a>b", when=1.0)
    machines.cut("a", 1.04, 0.5)
    machines.cut("b", 1.60, 0.3)
    # The timer fires at 1.24, 1.64 and 2.44 s
    assert machines.run()["a>b"] == pytest.approx(2.44 + 0.06 + RTT / 2)


def test_cut_on_a_flooding_bridge_stops_only_the_machine_behind_it() -> None:
    machines = Machines(flooding=True)
    machines.send("a>b")
    machines.cut("c", 0.05, 10)
    assert machines.run()["a>b"] == pytest.approx(0.1 + RTT / 2)


def test_dropped_messages_do_not_arrive_and_leave_their_share() -> None:
    machines = Machines()
    machines.send("a>b")
    machines.send("a>b", 100, 0.5, "later")
    machines.send("c>b")
    machines.kernel.at(0.1, lambda: machines.channels["a>b"].drop())
    machines.kernel.run_until(lambda: False)
    # Half of c's bytes left in the first 0.1 s, the rest alone
    assert machines.arrived == pytest.approx({"c>b": 0.15 + RTT / 2})


def test_transfer_resumes_at_its_own_rate() -> None:
    machines = Machines(a=port(RATE / 2))
    use(machines, "a>b")
    machines.send("a>b", when=1.0)
    machines.cut("a", 1.1, 0.1)
    assert machines.run()["a>b"] == pytest.approx(1.1 + RTO + 0.1 + RTT / 2)
