"""How uncertain the seconds of a bottleneck are: by samples of the CPU, by stamps, and between repeats."""

from __future__ import annotations

import pytest
from dasklab.breakdown.answers.bottlenecks.uncertainty import MESSAGE_STAMP_S, SAMPLE_S
from dasklab.breakdown.answers.summary import summarise
from dasklab.breakdown.model.causes import COMPUTING, LINK, LOCKS, OUTSIDE

from tests.unit.dasklab.breakdown.timelines import Row, by_hand, make_repeat, task


def of_task(stop: float, waits: tuple[Row, ...] = ()) -> dict[str, list[Row]]:
    """Tables for a task that uses a CPU for half of its time."""
    metrics = [
        {"node": "worker-1", "metric": f"execute/span/spin/thread-{use}/seconds", "value": stop / 2}
        for use in ("cpu", "noncpu")
    ]
    use = {"loop_waiting_s": 0.0, "node": "worker-1"}
    cpu = [use | {"time_s": time, "cpu_s": time / 2, "waiting_s": time * 1e-9} for time in (0.0, stop)]
    return {"metrics": metrics, "cpu": cpu, "waits": list(waits)}


def test_sampled_figures_divide_computing_less_certainly_than_a_wait_for_a_lock() -> None:
    lock = {"worker": "worker-1", "start_s": 2.0, "stop_s": 5.0, "key": "spin-1", "kind": "Lock", "name": "a"}
    spin = task("spin-1", "worker-1", 1, 0.0, 10.0, decided=0.0, handled=10.0)
    repeat = make_repeat([spin], threads={"worker-1": 1}, tables=of_task(10.0, (lock,)))
    uncertainty_s = summarise([repeat]).uncertainty_s
    assert uncertainty_s[OUTSIDE] == uncertainty_s[COMPUTING] == SAMPLE_S / 2
    assert uncertainty_s[LOCKS] == 0.0


def test_each_message_on_the_wire_compares_two_clocks() -> None:
    assert summarise([by_hand()]).uncertainty_s[LINK] == pytest.approx(6 * MESSAGE_STAMP_S)


def message(number: int) -> Row:
    """A task of 9 ms, one every 10 ms, that was 0.3 ms on its way to the worker."""
    start = number / 100
    way = {
        "decided": start - 0.0004,
        "sent": start - 0.0004,
        "arrived": start - 0.0001,
        "ready": start - 0.0001,
    }
    return task(
        f"inc-{number}", "worker-1", 1, start, start + 0.009, **way, handled=start + 0.0095,
        trigger=f"inc-{number - 1}",
    )  # fmt: skip


def test_many_short_messages_are_not_all_wrong_in_one_direction() -> None:
    """Each of them takes less than its stamps may be wrong by; their sum is certain to a quarter."""
    summary = summarise([make_repeat([*map(message, range(1, 100))], threads={"worker-1": 1}, stop=1.0)])
    total_s = sum(seconds for (bottleneck, _), seconds in summary.bottlenecks.items() if bottleneck is LINK)
    assert summary.uncertainty_s[LINK] == pytest.approx(total_s / 4) and total_s > 0.02


def test_repeats_that_vary_make_a_mean_uncertain() -> None:
    repeats = [
        make_repeat(
            [task("spin-1", "worker-1", 1, 0.0, stop, decided=0.0, handled=stop)],
            threads={"worker-1": 1}, stop=stop, number=number,
        )
        for number, stop in enumerate((8.0, 10.0))
    ]  # fmt: skip
    assert summarise(repeats).uncertainty_s[COMPUTING] == pytest.approx(2.0)  # deviation 1.41, of two
    assert summarise(repeats[:1]).uncertainty_s[COMPUTING] == 0.0
