"""Virtual time by itself: order, busy loops, shared cores, what is pinned and put back."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid

import pytest
from dasklab.sim.kernel import Host, Kernel, VirtualLoop, virtual_time


def test_equal_times_keep_their_order_and_the_past_is_now() -> None:
    kernel, said = Kernel(), list[tuple[str, float]]()
    for when, what in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (-5.0, "past")):
        kernel.at(when, lambda what=what: said.append((what, kernel.now)))
    assert not kernel.run_until(lambda: False)
    assert said == [("past", 0.0), ("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_what_never_comes_is_given_up_even_if_timers_go_round() -> None:
    kernel = Kernel(limit_s=100)

    def again() -> None:
        kernel.at(kernel.now + 1, again)

    again()
    assert not kernel.run_until(lambda: False)
    assert 100 < kernel.now < 102


def test_a_busy_loop_takes_what_arrived_when_its_turn_is_over() -> None:
    kernel = Kernel()
    loop = VirtualLoop.create(kernel, Host(kernel))
    seen: list[tuple[str, float]] = []

    def work() -> None:
        loop.charge(3.0)
        seen.append(("worked", loop.clock()))

    loop.call_soon(work)
    kernel.at(1.0, loop.call_soon, lambda: seen.append(("message", loop.clock())))
    kernel.run_until(lambda: len(seen) == 2)
    assert seen == [("worked", 3.0), ("message", 3.0)]
    assert loop.busy_s == 3.0


def test_coroutines_sleep_in_virtual_time() -> None:
    kernel = Kernel()
    loop = VirtualLoop.create(kernel, Host(kernel))

    async def wait() -> float:
        await asyncio.sleep(3600)
        return await asyncio.wait_for(asyncio.sleep(5, 42.0), 10)

    task = loop.create_task(wait())
    assert kernel.run_until(task.done)
    assert (task.result(), kernel.now) == (42.0, 3605.0)


def test_tasks_share_cores_and_one_that_ends_leaves_more() -> None:
    kernel = Kernel()
    host, ended = Host(kernel, cores=2), dict[str, float]()
    for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        host.compute(seconds, lambda name=name: ended.update({name: kernel.now}))
    kernel.run_until(lambda: len(ended) == 3)
    # all three at 2/3 until a has its second at 1.5; b and c, with 1 s each left, have a core each then
    assert ended == pytest.approx({"a": 1.5, "b": 2.5, "c": 2.5})


def test_an_event_loop_takes_its_time_from_tasks_on_full_cores_only() -> None:
    def ends(cores: int | None) -> float:
        kernel = Kernel()
        host, ended = Host(kernel, cores), list[float]()
        loop = VirtualLoop.create(kernel, host)
        host.compute(1.0, lambda: ended.append(kernel.now))
        loop.call_soon(loop.charge, 0.25)
        kernel.run_until(lambda: bool(ended))
        return ended[0]

    assert [ends(1), ends(2), ends(None)] == pytest.approx([1.25, 1.0, 1.0])


def test_a_part_of_a_core_is_missed_when_all_are_wanted() -> None:
    def ends(tasks: int) -> float:
        kernel, ended = Kernel(), list[float]()
        host = Host(kernel, cores=1.5)
        for _ in range(tasks):
            host.compute(1.0, lambda: ended.append(kernel.now))
        kernel.run_until(lambda: len(ended) == tasks)
        return ended[-1]

    assert [ends(1), ends(2), ends(3)] == pytest.approx([1.0, 2 / 1.5, 3 / 1.5])


def test_event_loops_leave_others_their_part_of_a_core() -> None:
    kernel = Kernel()
    host, started = Host(kernel, cores=1.5), list[float]()

    def turn(loop: VirtualLoop) -> None:
        started.append(loop.clock())
        loop.charge(0.75)

    for loop in [VirtualLoop.create(kernel, host) for _ in range(6)]:
        loop.call_soon(turn, loop)
    kernel.run_until(lambda: len(started) == 6)
    assert started == pytest.approx([0, 0, 1, 1, 2, 2])  # 1.5 s of CPU in each second


def test_event_loops_queue_for_cores() -> None:
    kernel = Kernel()
    host, started = Host(kernel, cores=2), list[float]()

    def turn(loop: VirtualLoop) -> None:
        started.append(loop.clock())
        loop.charge(1.0)

    for loop in [VirtualLoop.create(kernel, host) for _ in range(4)]:
        loop.call_soon(turn, loop)
    kernel.run_until(lambda: len(started) == 4)
    assert started == [0.0, 0.0, 1.0, 1.0]


def test_clocks_identifiers_and_dice_are_pinned_and_put_back() -> None:
    before = (time.time, time.monotonic, time.sleep, uuid.uuid4, os.getpid, random.getstate())

    def world(seed: int) -> tuple[object, ...]:
        kernel = Kernel()
        with virtual_time(kernel, seed):
            start, name = time.time(), uuid.uuid4()
            time.sleep(1000)
            return time.time() - start, time.monotonic(), name, uuid.uuid1(), random.random(), os.getpid()

    assert world(1) == world(1)
    assert world(1)[:2] == (1000.0, 1000.0)
    assert world(1)[2:5] != world(2)[2:5]
    assert before == (time.time, time.monotonic, time.sleep, uuid.uuid4, os.getpid, random.getstate())
