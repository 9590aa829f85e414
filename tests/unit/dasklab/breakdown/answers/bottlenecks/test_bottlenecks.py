"""What the critical path speaks for: slow workers, worker lag, placement, links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dasklab.breakdown.answers.bottlenecks.bottlenecks import avoidable
from dasklab.breakdown.answers.bottlenecks.slow_workers import typical_seconds
from dasklab.breakdown.answers.summary import Summary, hosts, summarise, without_places
from dasklab.breakdown.model.causes import (
    BUSY_PEERS,
    COMPUTING,
    CPU,
    GRAPHS,
    LINK,
    MESSAGE,
    PLACEMENT,
    RECEIVED,
    SLOW,
    WIRE,
    WORKER_LAG,
)
from dasklab.breakdown.model.repeat import Repeat
from dasklab.comparison.difference import Difference
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import (
    Row,
    Spans,
    fetch,
    idle_for,
    make_repeat,
    random_repeat,
    task,
)

PAIR = "worker-3 < worker-1"


def tasks(slow_s: float) -> list[Row]:
    """Ten tasks on each of two workers, one after the other; those on worker-2 may take longer."""
    rows: list[Row] = []
    free = {"worker-1": 0.0, "worker-2": 0.0}
    for number in range(20):
        worker = f"worker-{number % 2 + 1}"
        start = free[worker]
        free[worker] = start + (slow_s if worker == "worker-2" else 1.0)
        trigger = rows[-2]["key"] if number >= 3 and number % 2 else ""
        rows.append(task(f"inc-{number}", worker, 1, start, free[worker], decided=start, trigger=trigger))
    return rows


def first(rows: list[Row], stop: float, busy: dict[str, Spans] | None = None) -> tuple[object, str, float]:
    return summarise([make_repeat(rows, stop=stop, busy=busy or {})]).ranked()[0]


def test_a_slow_worker_is_recognised_by_the_same_tasks_elsewhere() -> None:
    assert first(tasks(3.0), 30.0) == (SLOW, "worker-2", pytest.approx(20.0))


def test_a_worker_that_ran_little_is_slow_if_it_took_longer_than_anybody() -> None:
    others = [row for row in tasks(3.0) if row["worker"] == "worker-1"]
    late = [task(f"inc-{at + 90}", "worker-2", 1, at, at + 9, decided=at) for at in (0, 9)]
    late[1]["trigger"] = late[0]["key"]
    assert first([*others, *late], 18.0) == (SLOW, "worker-2", pytest.approx(16.0))
    late[0]["stop_s"] = 0.9
    assert first([*others, *late], 18.0)[0] is not SLOW


def test_a_long_task_of_a_somewhat_slower_worker_computes() -> None:
    """Elsewhere it would be shorter by as much as that worker's other tasks are, not as short as they are."""
    rows = tasks(2.0)
    last = rows[-1]["stop_s"]
    long = task("inc-20", "worker-2", 1, last, last + 20.0, decided=last, trigger=rows[-1]["key"])
    blamed = summarise([make_repeat([*rows, long], stop=last + 20.0)]).bottlenecks
    assert blamed[COMPUTING, "worker-2"] == pytest.approx(20.0)
    assert blamed[SLOW, "worker-2"] == pytest.approx(20.0)


def test_a_worker_is_not_slow_by_as_much_as_threads_waited_for_a_cpu() -> None:
    use = {"node": "worker-1", "loop_waiting_s": 0.0}
    waited = {"time_s": 20.0, "cpu_s": 5.0, "waiting_s": 5.0}
    cpu = [use | {"time_s": 0.0, "cpu_s": 0.0, "waiting_s": 0.0}, use | waited]
    for tables, slow in (({}, 10), ({"cpu": cpu}, 0)):
        repeat = make_repeat(tasks(2.0), stop=20.0, tables=tables)
        seconds = repeat.tasks.stop - repeat.tasks.start
        assert (typical_seconds(repeat, seconds) < seconds).sum() == slow


def test_a_busy_event_loop_during_slow_tasks_is_worker_lag() -> None:
    expected = (WORKER_LAG, "worker-2", pytest.approx(20.0))
    assert first(tasks(3.0), 30.0, {"worker-2": [(0.0, 30.0)]}) == expected


def test_a_worker_that_waits_for_a_cpu_is_not_slow() -> None:
    """Its tasks take longer, and use as much CPU time as those elsewhere."""
    repeat = make_repeat(tasks(3.0), stop=30.0)
    waits = np.where(repeat.tasks.worker == repeat.node("worker-2"), 2 / 3, 0.0)
    shares = replace(idle_for(repeat, 0.0), idle=waits, starved=np.ones(len(waits)))
    starved = replace(repeat, evidence=replace(repeat.evidence, shares=shares))
    seconds = without_places(summarise([starved]).bottlenecks)
    assert seconds[CPU] == pytest.approx(20.0)
    assert seconds[SLOW] == pytest.approx(0.0)


def test_tasks_that_use_a_cpu_hold_up_their_event_loop_themselves() -> None:
    repeat = make_repeat(tasks(3.0), stop=30.0, busy={"worker-2": [(0.0, 30.0)]})
    metered = replace(repeat, evidence=replace(repeat.evidence, shares=idle_for(repeat, 0.01)))
    assert summarise([metered]).ranked()[0] == (SLOW, "worker-2", pytest.approx(20.0, rel=0.02))


def test_slow_unpickling_is_no_fault_of_the_placement() -> None:
    first, second = (task("a", "worker-1", 1, 0.0, 1.0, handled=1.0), task("b", "worker-2", 1, 9.0, 10.0,
                     decided=1.0, sent=1.0, arrived=1.0, ready=9.0, executing=9.0, trigger="a",
                     needs=(("a", 1e6, ("worker-1",)),)))  # fmt: skip
    brought = fetch(
        "worker-2", "worker-1", 1.0, 9.0, ("a",), serve_start_s=1.1, serialise_s=0.1, deserialise_s=7.0
    )
    seconds = without_places(summarise([make_repeat([first, second], [brought])]).bottlenecks)
    assert seconds[BUSY_PEERS] == pytest.approx(7.1)
    assert seconds[PLACEMENT] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("worker", "needs", "share"),
    [
        ("worker-3", [("a", 3.0, ("worker-1",)), ("b", 1.0, ("worker-2", "worker-3"))], 2 / 3),
        ("worker-1", [("a", 3.0, ("worker-1",)), ("b", 1.0, ("worker-2", "worker-3"))], 0.0),
        ("worker-3", [], 0.0),
        # a worker does not name itself as a holder, so it has the first; one of two has to move anyway
        ("worker-3", [("a", 3.0, ()), ("b", 3.0, ("worker-2",))], 0.0),
    ],
)
def test_placement_that_moves_more_than_it_must(
    worker: str, needs: list[tuple[str, float, tuple[str, ...]]], share: float
) -> None:
    threads = {"worker-1": 1, "worker-2": 1, "worker-3": 1}
    repeat = make_repeat([task("c", worker, 1, 0.0, 1.0, needs=needs)], threads=threads)
    assert avoidable(repeat, np.array([0])) == pytest.approx([share])


@pytest.mark.parametrize(
    ("moved", "seconds", "expected"),
    [
        ((10.0, 10.0), 8.0, {LINK: 6.0}),  # as many bytes, four times as slow
        ((10.0, 20.0), 4.0, {PLACEMENT: 2.0}),  # twice the bytes at the same seconds per byte
        ((10.0, 20.0), 12.0, {PLACEMENT: 2.0, LINK: 8.0}),  # both: the bytes at the old price
        ((20.0, 10.0), 8.0, {LINK: 6.0}),  # fewer bytes do not excuse a link
    ],
)
def test_more_data_is_placement_and_slower_bytes_are_the_link(
    moved: tuple[float, float], seconds: float, expected: dict[object, float]
) -> None:
    """Half of the first trial's two seconds is for bytes that a better placement would not have moved."""
    old, new = (
        Summary(
            makespan_s=total,
            threads=3,
            repeats=1,
            bottlenecks={(LINK, PAIR): total / 2, (PLACEMENT, PAIR): total / 2},
            moved_bytes=size,
        )
        for total, size in zip((2.0, seconds), moved, strict=True)
    )
    change = without_places(Difference(old, new).bottlenecks)
    assert {label: s for label, s in change.items() if abs(s) > 1e-9} == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_difference_adds_up(one: int, other: int) -> None:
    change = Difference(summarise([random_repeat(one, True)]), summarise([random_repeat(other, True)]))
    for cells in (change.breakdown, change.path):
        assert sum(cells.values()) == pytest.approx(change.makespan_s, abs=1e-6)
    for summary in (change.old, change.new):
        assert sum(summary.bottlenecks.values()) == pytest.approx(summary.makespan_s, abs=1e-6)


def empty_run() -> Repeat:
    return make_repeat()


def test_a_run_without_tasks_has_a_breakdown() -> None:
    summary = summarise([empty_run()])
    assert sum(summary.breakdown.values()) == pytest.approx(10.0)
    assert sum(summary.path.values()) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("nbytes", "busy", "link_s"),
    [
        (1e6, {}, 2.0),
        (1e6, {"client": [(0.5, 2.0)], "scheduler": [(2.0, 2.25)]}, 0.25),
        (1e6, {"client": [(0.5, 1.0)], "scheduler": [(2.0, 2.25)]}, 2.0),  # busy with what had arrived
        (100e6, {}, 0.0),
    ],
)
def test_a_graph_that_travels_slowly_while_nobody_is_busy_speaks_for_the_link(
    nbytes: float, busy: dict[str, Spans], link_s: float
) -> None:
    durations = dict.fromkeys(("materialise_s", "order_s", "state_s"), 0.0)
    graph = {"begin_s": 0.5, "sent_s": 0.5, "received_s": 2.5, "nbytes": nbytes, "tasks": 1, **durations}
    row = task("inc-1", "worker-1", 1, 2.5, 4.0, decided=2.5, handled=4.0)
    repeat = make_repeat([row], stop=4.0, busy=busy, graphs=[graph], unfinished=[(2.5, 1), (4.0, 0)])
    blamed = without_places(summarise([repeat]).bottlenecks)
    assert blamed.get(LINK, 0.0) == pytest.approx(link_s)
    assert blamed.get(GRAPHS, 0.0) == pytest.approx(2.0 - link_s)


def test_message_with_a_large_part_of_a_graph_speaks_for_the_graph() -> None:
    """A function of 20 MB goes on to the worker with the message that assigns the task."""
    durations = dict.fromkeys(("materialise_s", "order_s", "state_s"), 0.0)
    graph = {"begin_s": 0.5, "sent_s": 0.5, "received_s": 1.0, "nbytes": 20e6, "tasks": 1, **durations}
    row = task("inc-1", "worker-1", 1, 3.0, 4.0, executing=2.9, ready=2.8, arrived=2.5, sent=1.2, decided=1.0)
    repeat = make_repeat(
        [row | {"handled_s": 4.0}], stop=4.0, graphs=[graph], unfinished=[(1.0, 1), (4.0, 0)]
    )
    blamed = without_places(summarise([repeat]).bottlenecks)
    assert blamed[GRAPHS] == pytest.approx(2.5, abs=0.01)
    assert blamed.get(LINK, 0.0) == 0.0


def test_the_scheduler_s_link_is_named_where_all_workers_share_its_delay() -> None:
    cells = {(MESSAGE, f"worker-{n} < scheduler"): 1.0 for n in (1, 2, 3)}
    blamed = {(LINK, "worker-1 < scheduler"): 3.0}
    old, new = Summary(1.0, 3, 1), Summary(4.0, 3, 1, breakdown=cells, bottlenecks=blamed)
    assert Difference(old, new).ranked()[0][:2] == (LINK, "scheduler")
    one = replace(new, breakdown=cells | {(MESSAGE, "worker-2 < scheduler"): 4.0})
    assert Difference(old, one).ranked()[0][:2] == (LINK, "worker-2")


def test_who_receives_data_is_named_not_its_sender() -> None:
    cells = {(RECEIVED, PAIR): 2.0, (WIRE, PAIR): 1.0}
    assert hosts(cells, RECEIVED) == [("worker-3", 2.0)]
    assert hosts(cells, WIRE) == [("worker-3", 1.0), ("worker-1", 1.0)]
