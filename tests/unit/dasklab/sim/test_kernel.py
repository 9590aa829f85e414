"""Virtual time without Dask: order of actions, busy event loops, shared cores, pinned clocks."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid

import pytest
from dasklab.sim.kernel import Host, HungError, Kernel, VirtualLoop, virtual_time


def never() -> bool:
    return False


# --- actions -----------------------------------------------------------------------------------------------


def test_actions_at_equal_times_keep_their_order_and_a_past_time_means_now() -> None:
    kernel, events = Kernel(), list[tuple[str, float]]()
    for when, name in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (-5.0, "past")):
        kernel.at(when, lambda name=name: events.append((name, kernel.now)))
    assert not kernel.run_until(never)
    assert events == [("past", 0.0), ("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_run_stops_at_the_time_limit_even_if_timers_re_arm_themselves() -> None:
    kernel = Kernel(limit_s=100)

    def re_arm() -> None:
        kernel.at(kernel.now + 1, re_arm)

    re_arm()
    assert not kernel.run_until(never)
    assert 100 < kernel.now < 102


def test_waiting_for_an_impossible_condition_is_a_hang() -> None:
    with pytest.raises(HungError):
        Kernel(limit_s=10).wait_for(never)


# --- event loops -------------------------------------------------------------------------------------------


def test_busy_loop_handles_a_message_after_its_turn() -> None:
    kernel = Kernel()
    loop = VirtualLoop.create(kernel, Host(kernel))
    events: list[tuple[str, float]] = []

    def work() -> None:
        loop.charge(3.0)
        events.append(("worked", loop.clock()))

    loop.call_soon(work)
    kernel.at(1.0, loop.call_soon, lambda: events.append(("message", loop.clock())))
    kernel.run_until(lambda: len(events) == 2)
    assert events == [("worked", 3.0), ("message", 3.0)]
    assert loop.busy_s == 3.0


def test_coroutines_sleep_in_virtual_time() -> None:
    kernel = Kernel()
    loop = VirtualLoop.create(kernel, Host(kernel))

    async def sleep() -> float:
        await asyncio.sleep(3600)
        return await asyncio.wait_for(asyncio.sleep(5, 42.0), 10)

    task = loop.create_task(sleep())
    assert kernel.run_until(task.done)
    assert (task.result(), kernel.now) == (42.0, 3605.0)


def test_closed_loop_runs_nothing() -> None:
    kernel, events = Kernel(), list[str]()
    loop = VirtualLoop.create(kernel, Host(kernel))
    loop.call_soon(events.append, "before")
    loop.call_later(1.0, events.append, "timer")
    kernel.at(0.5, loop.close)
    kernel.at(0.7, loop.call_soon, events.append, "from the network")
    kernel.run_until(never)
    assert events == ["before"]


# --- cores -------------------------------------------------------------------------------------------------


def test_tasks_share_cores_and_one_that_ends_leaves_its_share() -> None:
    kernel = Kernel()
    host, ends = Host(kernel, cores=2), dict[str, float]()
    for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        host.compute(seconds, lambda name=name: ends.update({name: kernel.now}))
    kernel.run_until(lambda: len(ends) == 3)
    # All three advance at 2/3 until a has its second at 1.5 s; then b and c have a core each for 1 s
    assert ends == pytest.approx({"a": 1.5, "b": 2.5, "c": 2.5})


def test_cancelled_task_leaves_its_share() -> None:
    kernel = Kernel()
    host, ends = Host(kernel, cores=1), dict[str, float]()

    def end_first() -> None:
        ends["first"] = kernel.now

    host.compute(1.0, end_first)
    host.compute(1.0, lambda: ends.update(second=kernel.now))
    kernel.at(1.0, host.cancel, end_first)
    kernel.run_until(never)
    assert ends == pytest.approx({"second": 1.5})  # it had half of its time at 1.0 s


def test_event_loop_takes_time_from_tasks_on_full_cores_only() -> None:
    def end(cores: int | None) -> float:
        kernel = Kernel()
        host, ends = Host(kernel, cores), list[float]()
        loop = VirtualLoop.create(kernel, host)
        host.compute(1.0, lambda: ends.append(kernel.now))
        loop.call_soon(loop.charge, 0.25)
        kernel.run_until(lambda: bool(ends))
        return ends[0]

    assert [end(1), end(2), end(None)] == pytest.approx([1.25, 1.0, 1.0])


def test_fraction_of_a_core_matters_when_all_cores_are_wanted() -> None:
    def last_end(tasks: int) -> float:
        kernel, ends = Kernel(), list[float]()
        host = Host(kernel, cores=1.5)
        for _ in range(tasks):
            host.compute(1.0, lambda: ends.append(kernel.now))
        kernel.run_until(lambda: len(ends) == tasks)
        return ends[-1]

    assert [last_end(1), last_end(2), last_end(3)] == pytest.approx([1.0, 2 / 1.5, 3 / 1.5])


def turn_starts(loops: int, cores: float, cost_s: float) -> list[float]:
    """Let each of several event loops on one host run one turn; return when the turns start."""
    kernel = Kernel()
    host, starts = Host(kernel, cores=cores), list[float]()

    def turn(loop: VirtualLoop) -> None:
        starts.append(loop.clock())
        loop.charge(cost_s)

    for loop in [VirtualLoop.create(kernel, host) for _ in range(loops)]:
        loop.call_soon(turn, loop)
    kernel.run_until(lambda: len(starts) == loops)
    return starts


def test_event_loops_queue_for_cores() -> None:
    assert turn_starts(4, cores=2, cost_s=1.0) == [0.0, 0.0, 1.0, 1.0]


def test_event_loops_leave_other_processes_their_fraction_of_a_core() -> None:
    # 1.5 s of CPU in each second
    assert turn_starts(6, cores=1.5, cost_s=0.75) == pytest.approx([0, 0, 1, 1, 2, 2])


# --- clocks ------------------------------------------------------------------------------------------------


def test_clocks_identifiers_and_dice_are_pinned_and_restored() -> None:
    before = (time.time, time.monotonic, time.sleep, uuid.uuid4, os.getpid, random.getstate())

    def observe(seed: int) -> tuple[object, ...]:
        kernel = Kernel()
        with virtual_time(kernel, seed):
            start, name = time.time(), uuid.uuid4()
            time.sleep(1000)
            return time.time() - start, time.monotonic(), name, uuid.uuid1(), random.random(), os.getpid()

    assert observe(1) == observe(1)
    assert observe(1)[:2] == (1000.0, 1000.0)
    assert observe(1)[2:5] != observe(2)[2:5]
    assert before == (time.time, time.monotonic, time.sleep, uuid.uuid4, os.getpid, random.getstate())
