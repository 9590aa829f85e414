"""Causes are divided by evidence: locks, other tasks, garbage, CPUs, actors, pauses, lost results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.answers.invariants import checked
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.answers.summary import summarise
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.causes import (
    ACTOR,
    AGAIN,
    CAUSES,
    COMPUTE,
    EXTERNAL,
    EXTERNAL_OR_STARVED,
    GARBAGE,
    HOLDING,
    INTERPRETER,
    LAG,
    LOCK,
    MEASURE,
    NESTED,
    PAUSED,
    SERIALISE,
    SHUFFLE,
    STARVED,
    UNMETERED,
    USER,
    Cause,
)
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.breakdown.prepare.excerpt import excerpt
from dasklab.breakdown.show.changes import change_sentences
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import Row, fetch, make_repeat, random_repeat, task

ONE = {"worker-1": 1}


def one_task(tables: dict[str, list[Row]], **more: Any) -> Repeat:
    """A task that computes from 1 to 9 on the only thread, and other tables."""
    row = task("spin-1", "worker-1", 1, 1.0, 9.0, decided=0.9, handled=9.0, waiting=0.5)
    return make_repeat([row | more], threads=ONE, tables=tables)


def seconds(intervals: Intervals) -> dict[Cause, float]:
    totals: dict[Cause, float] = {}
    for code, length in zip(intervals.cause.tolist(), intervals.seconds.tolist(), strict=True):
        totals[CAUSES[code]] = totals.get(CAUSES[code], 0.0) + length
    return totals


def wait(start: float, stop: float, kind: str, key: str = "spin-1", name: str = "a") -> Row:
    return {"worker": "worker-1", "start_s": start, "stop_s": stop, "key": key, "kind": kind, "name": name}


def metric(name: str, value: float) -> Row:
    return {"node": "worker-1", "metric": f"execute/span/spin/{name}/seconds", "value": value}


def cpu(cpu_s: float, waiting_s: float) -> list[Row]:
    """Two samples of worker-1: so much CPU, and waiting, from 0 to 10. Every real process waits a little."""
    common = {"node": "worker-1", "loop_waiting_s": 0.0}
    return [
        common | {"time_s": 0.0, "cpu_s": 0.0, "waiting_s": 0.0},
        common | {"time_s": 10.0, "cpu_s": cpu_s, "waiting_s": waiting_s + 1e-9},
    ]


def late(start: float, stop: float) -> Row:
    """An event loop that was kept from running."""
    return {"node": "worker-1", "start_s": start, "stop_s": stop, "late_s": stop - start}


IDLE = [metric("thread-cpu", 2.0), metric("thread-noncpu", 6.0)]  # of 8 s three quarters without a CPU

CASES: dict[str, tuple[Repeat, dict[Cause, float]]] = {
    "a lock": (one_task({"waits": [wait(2, 5, "Lock")]}), {LOCK: 3.0}),
    "a lock, for which it waited before it had started, by its clock": (
        one_task({"waits": [wait(0.999, 5, "Lock")]}),
        {LOCK: 4.0},
    ),
    "a lock, in a first attempt": (
        make_repeat(
            [task("spin-1", "worker-1", 1, start, stop) for start, stop in ((0.5, 5.0), (5.5, 9.0))],
            threads=ONE,
            tables={"waits": [wait(2, 5, "Lock")]},
        ),
        {LOCK: 3.0},
    ),
    "measuring its result": (
        one_task({"waits": [wait(7, 9, "sizeof")], "metrics": IDLE, "cpu": cpu(2.5, 0.0)}),
        {MEASURE: 2.0, EXTERNAL: 4.0},
    ),
    "tasks of its own": (one_task({"waits": [wait(2, 5, "Client")]}), {NESTED: 3.0}),
    "garbage": (one_task({"pauses": [{"node": "worker-1", "start_s": 8.0, "stop_s": 9.5}]}), {GARBAGE: 1.0}),
    "garbage, collected by a process that had no CPU": (
        one_task(
            {
                "pauses": [{"node": "worker-1", "start_s": 1.0, "stop_s": 9.0}],
                "metrics": IDLE,
                "cpu": cpu(2.5, 7.5),
            }
        ),
        {GARBAGE: 2.0, STARVED: 6.0},
    ),
    "something outside": (one_task({"metrics": IDLE, "cpu": cpu(2.5, 0.0)}), {EXTERNAL: 6.0}),
    "a CPU or something outside: the system does not say": (
        one_task({"metrics": IDLE, "cpu": cpu(2.5, float("nan"))}),
        {EXTERNAL_OR_STARVED: 6.0},
    ),
    "a CPU or something outside: an earlier recorder stored 0": (
        one_task({"metrics": IDLE, "cpu": cpu(2.5, -1e-9)}),
        {EXTERNAL_OR_STARVED: 6.0},
    ),
    "a CPU": (one_task({"metrics": IDLE, "cpu": cpu(2.5, 7.5)}), {STARVED: 6.0}),
    "the interpreter, which keeps the event loop from running, too": (
        one_task({"metrics": IDLE, "cpu": cpu(2.5, 0.0), "busy": [late(2.0, 6.0)]}),
        {INTERPRETER: 6.0},
    ),
    "nothing that a task could wait for alone, where CPUs are scarce: the loop is late, too": (
        one_task({"metrics": IDLE, "cpu": cpu(2.5, 1.0), "busy": [late(2.0, 6.0)]}),
        {STARVED: 0.8, EXTERNAL_OR_STARVED: 5.2},
    ),
    "threads of its own": (one_task({"metrics": IDLE, "cpu": cpu(10.0, 0.0)}), {}),
    "a CPU for a small part, and perhaps for the rest": (
        one_task(
            {"metrics": [metric("thread-cpu", 6.0), metric("thread-noncpu", 2.0)], "cpu": cpu(7.5, 0.5)}
        ),
        {STARVED: 0.4, EXTERNAL_OR_STARVED: 1.6},
    ),
    "something outside, though the task keeps its process busy": (
        one_task(
            {"metrics": [metric("thread-cpu", 6.4), metric("thread-noncpu", 1.6)], "cpu": cpu(8.0, 0.0)}
        ),
        {EXTERNAL: 1.6},
    ),
    "a lock, not something outside": (
        one_task({"metrics": IDLE, "cpu": cpu(2.5, 0.0), "waits": [wait(2, 8, "Lock")]}),
        {LOCK: 6.0},
    ),
}


def test_lag_while_the_loop_converts_data_of_another_transfer_is_converting() -> None:
    """The task could run at 1 s, and did at 8 s; its worker deserialised for 4 s, busy for 3 of them."""
    row = task("f-1", "worker-1", 1, 8.0, 9.0, decided=0.5, arrived=0.9, ready=1.0, executing=8.0)
    brought = fetch("worker-1", "worker-2", 1.5, 6.0, ["g-1"], deserialise_s=4.0)
    repeat = make_repeat([row], [brought], busy={"worker-1": [(3.0, 6.5)]})
    found = seconds(critical_path(repeat))
    assert found[SERIALISE] == pytest.approx(3.0)
    assert found[LAG] == pytest.approx(4.1)
    elsewhere = replace(repeat, fetches=replace(repeat.fetches, receiver=repeat.fetches.sender))
    assert SERIALISE not in seconds(critical_path(elsewhere))


@pytest.mark.parametrize("name", CASES)
def test_computing_is_divided_by_what_the_task_waited_for(name: str) -> None:
    repeat, expected = CASES[name]
    for intervals in (break_down(repeat), critical_path(repeat)):
        found = seconds(intervals)
        assert {cause: found.get(cause, 0.0) for cause in expected} == pytest.approx(expected)
        assert found.get(COMPUTE, 0.0) == pytest.approx(8.0 - sum(expected.values()))


def test_a_task_that_secedes_keeps_no_thread() -> None:
    """Its own task runs on a thread that took the place of the first; the client waits for the outer one."""
    inner = task("inner", "worker-1", 2, 5.0, 8.0)
    outer = task("spin-1", "worker-1", 1, 1.0, 9.0, decided=0.9, handled=9.0, waiting=0.5, seceded=4.0)
    repeat = make_repeat([outer, inner], threads=ONE)
    assert len(repeat.thread_rows[1]) == 1
    threads = seconds(break_down(repeat))
    assert (threads[COMPUTE], threads.get(NESTED, 0.0)) == (pytest.approx(6.0), 0.0)
    assert seconds(checked(repeat)[0].path)[NESTED] == pytest.approx(5.0)


def test_a_failed_attempt_is_divided_by_what_its_process_used() -> None:
    """Dask meters no attempt that fails. Two samples: 2 of 10 s of CPU, so 1.6 of the 8 s that it ran."""
    failed = task("spin-1", "worker-1", 1, 1.0, 9.0, decided=0.9) | {"status": "error"}
    found = seconds(break_down(make_repeat([failed], threads=ONE, tables={"cpu": cpu(2.0, 0.0)})))
    assert (found[COMPUTE], found[EXTERNAL]) == (pytest.approx(1.6), pytest.approx(6.4))
    unknown = seconds(break_down(make_repeat([failed], threads=ONE)))
    assert unknown[UNMETERED] == pytest.approx(8.0)


def test_a_failed_attempt_computed_what_its_thread_had_of_a_cpu() -> None:
    """The process's samples would say 1.6 s, and those that succeeded half of their time."""
    rows = [task(f"spin-{n}", "worker-1", 1, 4.0 * n, 4.0 * n + 4.0, decided=0.0) for n in (0, 1)]
    rows[0] |= {"status": "error", "cpu_s": 3.0}
    half = [metric("thread-cpu", 2.0), metric("thread-noncpu", 2.0)]
    for metrics, of_other_s in ((half, 2.0), ([], 4.0)):
        repeat = make_repeat(rows, threads=ONE, tables={"metrics": metrics, "cpu": cpu(2.0, 0.0)})
        assert seconds(break_down(repeat))[COMPUTE] == pytest.approx(3.0 + of_other_s)


def test_a_shuffle_waits_for_its_own_exchange() -> None:
    failed = task("shuffle-transfer-1", "worker-1", 1, 1.0, 9.0, decided=0.9) | {"status": "error"}
    found = seconds(break_down(make_repeat([failed], threads=ONE, tables={"cpu": cpu(2.0, 0.0)})))
    assert (found.get(EXTERNAL, 0.0), found[SHUFFLE]) == (0.0, pytest.approx(6.4))


def test_two_tasks_of_a_process_wait_for_the_interpreter() -> None:
    """Each of them uses a CPU for half of the time: together they use one."""
    rows = [task(f"spin-{n}", "worker-1", n, 1.0, 9.0, decided=0.9) for n in (1, 2)]
    half = [metric("thread-cpu", 8.0), metric("thread-noncpu", 8.0)]
    repeat = make_repeat(rows, threads={"worker-1": 2}, tables={"metrics": half, "cpu": cpu(10.0, 0.0)})
    assert seconds(break_down(repeat))[INTERPRETER] == pytest.approx(8.0)


def test_the_task_that_holds_the_interpreter_may_wait_for_a_cpu() -> None:
    """Four tasks use a CPU for a tenth of the time each; the kernel counts 14 of 32 s of waiting."""
    rows = [task(f"spin-{n}", "worker-1", n, 1.0, 9.0, decided=0.9) for n in range(1, 5)]
    tenth = [metric("thread-cpu", 3.2), metric("thread-noncpu", 28.8)]
    repeat = make_repeat(rows, threads={"worker-1": 4}, tables={"metrics": tenth, "cpu": cpu(4.0, 17.5)})
    found = seconds(break_down(repeat))
    assert (found[STARVED], found[INTERPRETER]) == (pytest.approx(14.0), pytest.approx(14.8))


@pytest.mark.parametrize(
    ("held_s", "cpu_waiting_s", "turns", "starved_s"),
    [
        (10.0, 6.0, 400.0, 6.4),
        (10.0, 0.1, 1400.0, 0.0),
        (1.0, 6.0, 400.0, 14.4),
        (10.0, 7.2, 400.0, 14.4),
        (10.0, 4.0, 20.0, 14.4),
        (float("nan"), 6.0, 400.0, 14.4),
    ],
    ids=[
        "polling",
        "asleep and keeping it",
        "released",
        "never asleep",
        "asleep for long",
        "an earlier version",
    ],
)
def test_who_polls_for_the_interpreter_needs_no_cpu(
    held_s: float, cpu_waiting_s: float, turns: float, starved_s: float
) -> None:
    """Two tasks compute for 0.8 of 8 s each, and the kernel counts nearly all the rest as waiting for a CPU.

    One at a time holds the interpreter, with 1.6 of 8 s of CPU, so it lacked one for 6.4 s at most.
    """
    rows = [
        task(f"spin-{n}", "worker-1", n, 1.0, 9.0, decided=0.9, cpu=0.8, cpu_waiting=cpu_waiting_s)
        | {"cpu_turns": turns}
        for n in (1, 2)
    ]
    tenth = [metric("thread-cpu", 1.6), metric("thread-noncpu", 14.4)]
    samples = [row | {"held_s": share * held_s} for share, row in enumerate(cpu(2.0, 17.9))]
    repeat = make_repeat(rows, threads={"worker-1": 2}, tables={"metrics": tenth, "cpu": samples})
    found = seconds(break_down(repeat))
    assert found.get(STARVED, 0.0) == pytest.approx(starved_s)
    assert found.get(INTERPRETER, 0.0) == pytest.approx(14.4 - starved_s)


def test_a_lock_that_others_wait_for_is_held_at_their_cost() -> None:
    other = task("spin-2", "worker-2", 2, 2.0, 9.5, decided=0.9)
    waits = [wait(1, 6, "held"), wait(2, 6, "Lock", "spin-2") | {"worker": "worker-2"}]
    rows = [task("spin-1", "worker-1", 1, 1.0, 9.0, decided=0.9), other]
    found = seconds(break_down(make_repeat(rows, tables={"waits": waits})))
    assert (found[HOLDING], found[LOCK]) == (pytest.approx(5.0), pytest.approx(4.0))
    alone = seconds(break_down(make_repeat(rows[:1], tables={"waits": waits[:1]})))
    assert HOLDING not in alone


def test_actors_work_while_the_client_waits() -> None:
    repeat = make_repeat(
        threads=ONE, tables={"actor_calls": [{"worker": "worker-1", "start_s": 2.0, "stop_s": 5.0}]}
    )
    assert seconds(critical_path(repeat))[ACTOR] == pytest.approx(3.0)


def status(time: float, status: str) -> Row:
    detail = json.dumps({"action": "worker-status-change", "status": status})
    return {"time_s": time, "kind": "worker-status-change", "subject": "worker-1", "detail": detail}


def changes(repeat: Repeat) -> list[str]:
    return [sentence.text for sentence in change_sentences(repeat, Failures())]


def test_a_paused_worker_is_not_idle() -> None:
    tables = {"events": [status(2.0, "paused"), status(6.0, "running")]}
    repeat = make_repeat(threads=ONE, unfinished=[(0.0, 1)], tables=tables)
    assert seconds(break_down(repeat))[PAUSED] == pytest.approx(4.0)
    assert "worker-1 was paused for 4.0 s: its memory was nearly full." in changes(repeat)


def test_a_task_waits_for_the_end_of_its_workers_pause() -> None:
    """The graph arrived at 1, and nothing could take its task before worker-1 went on at 6."""
    tables = {"events": [status(0.0, "paused"), status(6.0, "running")]}
    row = task("spin-1", "worker-1", 1, 6.2, 9.0, decided=6.1, handled=9.0)
    stages = dict.fromkeys(("materialise_s", "order_s", "state_s"), 0.0)
    graph = {"received_s": 1.0, "tasks": 1, "nbytes": 1, "client": "c", **stages}
    work = [(1.0, 1), (9.0, 0)]
    repeat = make_repeat([row], threads=ONE, graphs=[graph], unfinished=work, tables=tables)
    path, violations = checked(replace(repeat, extent=Extent.WATCHED))
    assert seconds(path.path)[PAUSED] == pytest.approx(5.0, abs=0.1)
    assert not violations


def test_pause_is_at_the_worker_that_was_paused() -> None:
    """worker-2 has two tasks for its only thread, while worker-1 is paused and idle."""
    tables = {"events": [status(2.0, "paused"), status(6.0, "running")]}
    rows = [
        task(f"spin-{n}", "worker-2", 2, 5.0 * n, 5.0 * n + 5.0, decided=0.0, handled=5.0 * n + 5.0)
        for n in range(2)
    ]
    paused = summarise([make_repeat(rows, unfinished=[(0.0, 2), (10.0, 0)], tables=tables)]).breakdown
    assert paused[PAUSED, "worker-1"] == pytest.approx(4.0 / 2)  # of two threads


def test_only_what_was_lost_is_computed_again() -> None:
    twice = [task("x", "worker-1", 1, 1.0, 2.0, handled=2.1), task("x", "worker-1", 1, 6.0, 8.0, handled=8.1)]
    lost = {"time_s": 4.0, "kind": "lost", "subject": "x", "detail": "handle-worker-cleanup"}
    repeat = make_repeat(twice, threads=ONE, tables={"events": [lost]})
    assert seconds(break_down(repeat))[AGAIN] == pytest.approx(2.0)
    assert "1 result was lost and computed again: 2.0 s of thread time." in changes(repeat)
    released = lost | {"detail": "client-releases-keys"}
    assert AGAIN not in seconds(break_down(make_repeat(twice, threads=ONE, tables={"events": [released]})))


def test_a_thread_exists_while_its_worker_is_in_the_cluster() -> None:
    workers = [
        {"worker": "worker-1", "threads": 1},
        {"worker": "worker-2", "threads": 2, "joined_s": 4.0, "left_s": 9.0},
    ]
    repeat = make_repeat(threads={}, tables={"workers": workers})
    intervals = break_down(repeat)
    assert intervals.seconds.sum() == pytest.approx(10.0 + 2 * 5.0)
    assert sum(summarise([repeat]).breakdown.values()) == pytest.approx(repeat.makespan)
    assert changes(repeat) == [
        "worker-2 joined 4.0 s after the start.",
        "worker-2 left 9.0 s after the start.",
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.floats(0, 1), st.floats(0, 1))
def test_a_part_of_a_run_adds_up_as_the_whole(seed: int, one: float, other: float) -> None:
    whole = random_repeat(seed, True)
    start, stop = sorted(whole.start + share * whole.makespan for share in (one, other))
    if stop - start < 1e-3:
        return
    repeat = excerpt(whole, start, stop)
    summary = summarise([repeat])
    for cells in (summary.breakdown, summary.path, summary.bottlenecks):
        assert sum(cells.values()) == pytest.approx(repeat.makespan, abs=1e-4)
    before, after = break_down(whole), break_down(repeat)
    computing = before.select(before.is_cause(COMPUTE))
    inside = computing.stop.clip(start, stop) - computing.start.clip(start, stop)
    assert seconds(after).get(COMPUTE, 0.0) == pytest.approx(float(inside.sum()), abs=1e-4)


@pytest.mark.parametrize(("loop_s", "others_s"), [(7.5, 0.0), (0.0, 7.5)])
def test_a_task_on_its_way_to_a_thread_waits_for_the_cpu_of_either(loop_s: float, others_s: float) -> None:
    """From 1 to 9 the task is handed over, while one thread of the process waits for a CPU at 75 %."""
    row = task("spin-1", "worker-1", 1, 9.0, 9.5, executing=1.0, ready=1.0, decided=1.0, handled=9.5)
    common = {"node": "worker-1", "cpu_s": 0.0}
    samples = [
        common | {"time_s": 0.0, "waiting_s": 0.0, "loop_waiting_s": 0.0},
        common | {"time_s": 10.0, "waiting_s": loop_s + others_s, "loop_waiting_s": loop_s},
    ]
    found = seconds(break_down(make_repeat([row], threads=ONE, tables={"cpu": samples})))
    assert found[STARVED] == pytest.approx(6.0) and found[LAG] == pytest.approx(2.0)


@pytest.mark.parametrize(("own_s", "loop_s", "expected"), [(4.0, 0.0, 2.0), (0.0, 4.0, 0.0)])
def test_clients_code_that_waited_for_a_cpu_did_not_run(own_s: float, loop_s: float, expected: float) -> None:
    """The wait lies evenly within the run, of which the client's code has the last half."""
    common = {"node": "client", "cpu_s": 0.0}
    samples = [
        common | {"time_s": 0.0, "waiting_s": 0.0, "loop_waiting_s": 0.0},
        common | {"time_s": 10.0, "waiting_s": own_s + loop_s, "loop_waiting_s": loop_s},
    ]
    row = task("spin-1", "worker-1", 1, 0.0, 5.0)
    repeat = make_repeat([row], threads=ONE, unfinished=[(0.0, 1), (5.0, 0)], tables={"cpu": samples})
    for intervals in (break_down(repeat), critical_path(repeat)):
        found = seconds(intervals)
        assert found.get(STARVED, 0.0) == pytest.approx(expected)
        assert found[USER] == pytest.approx(5.0 - expected)


@pytest.mark.parametrize(("loop_cpu_s", "computes_s"), [(0.0, 8.0), (float("nan"), 0.5)])
def test_event_loop_that_waits_for_the_interpreter_uses_no_cpu(loop_cpu_s: float, computes_s: float) -> None:
    """The loop was busy for as long as the failed task ran; its own CPU time tells that it waited."""
    failed = task("spin-1", "worker-1", 1, 1.0, 9.0, decided=0.9, handled=9.0) | {"status": "error"}
    samples = [row | {"loop_cpu_s": share * loop_cpu_s} for share, row in enumerate(cpu(10.0, 0.0))]
    busy = [{"node": "worker-1", "start_s": 1.0, "stop_s": 8.5, "late_s": 0.0}]
    repeat = make_repeat([failed], threads=ONE, tables={"cpu": samples, "busy": busy})
    assert seconds(break_down(repeat)).get(COMPUTE, 0.0) == pytest.approx(computes_s)


def test_timers_that_are_late_say_nothing_of_the_interpreter() -> None:
    """A task used no CPU for a tenth of its time, and the event loop was late for as long."""
    nearly = [metric("thread-cpu", 7.2), metric("thread-noncpu", 0.8)]
    tables = {"metrics": nearly, "cpu": cpu(7.2, 0.0), "busy": [late(2.0, 2.8)]}
    assert INTERPRETER not in seconds(break_down(one_task(tables)))


def test_task_whose_kind_nobody_metered_neither_computes_nor_waits() -> None:
    metrics = [
        {"node": "worker-1", "metric": f"execute/span/inc/{activity}/seconds", "value": 1.0}
        for activity in ("thread-cpu", "thread-noncpu")
    ]
    tasks = [task("inc-1", "worker-1", 1, 1.0, 3.0), task("eat-1", "worker-1", 1, 4.0, 9.0)]
    totals = seconds(break_down(make_repeat(tasks, threads=ONE, tables={"metrics": metrics})))
    assert totals[UNMETERED] == pytest.approx(5.0) and totals[COMPUTE] == pytest.approx(1.0)
