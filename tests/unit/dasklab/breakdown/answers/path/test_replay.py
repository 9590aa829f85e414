"""The replay without the wire: by hand, where a sum would be wrong, and for stamps that make no sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from dasklab.breakdown.answers.path.replay import mean, replay
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import Trial
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import (
    Row,
    Spans,
    by_hand,
    fetch,
    make_repeat,
    random_repeat,
    task,
)

RECORDS = Path(__file__).parents[5] / "data" / "records"


def test_a_run_by_hand_is_replayed_as_it_was_and_without_its_wire() -> None:
    result = replay(by_hand())
    assert result.as_it_was_s == pytest.approx(10.0)
    # to worker-1 0.1, its report 0.3, to worker-2 0.3, a's data 0.4 + 1.8, b's report 0.2
    assert result.without_wire_s == pytest.approx(10.0 - 0.1 - 0.3 - 0.3 - 2.2 - 0.2)


def test_time_that_is_not_on_the_wire_remains() -> None:
    repeat = by_hand(busy={"worker-1": [(5.15, 7.0)]})  # the sender's loop was busy after it wrote
    assert replay(repeat).without_wire_s == pytest.approx(6.9 + 1.8)


def test_time_before_a_fetch_begins_is_not_the_networks() -> None:
    late = replay(by_hand(second={"sent_s": 3.7, "arrived_s": 4.0}))  # 0.6 s before the fetch of a's data
    assert late.without_wire_s == pytest.approx(6.9)


def two_chains(*more: Row, stop: float = 6.0, threads: int = 1, **others: Any) -> Repeat:
    """worker-2 waits 5 s for data and computes 1 s, while worker-1 computes for 4 s."""
    need = (("a", 1e6, ("worker-1",)),)
    tasks = [
        task("a", "worker-1", 1, 0.0, 1e-9, decided=0.0, handled=1e-9),
        task("long", "worker-1", 1, 1e-9, 4.0, arrived=0.0, decided=0.0, handled=4.0),
        task("b", "worker-2", 2, 5.0, 6.0, ready=5.0, arrived=0.0, decided=0.0, handled=6.0, needs=need),
        *({**row, "needs": need} if row["worker"] == "worker-2" else row for row in more),
    ]
    brought = fetch("worker-2", "worker-1", 0.0, 5.0, ("a",), serve_start_s=0.0)
    return make_repeat(tasks, [brought], stop=stop, threads={"worker-1": 1, "worker-2": threads}, **others)


def test_another_chain_remains_without_the_wire() -> None:
    """The critical path minus the wire would be one second; the other worker needs four."""
    result = replay(two_chains())
    assert (result.as_it_was_s, result.without_wire_s) == (pytest.approx(6.0), pytest.approx(4.0))


def of_a_client(calls: Sequence[Row], graphs: Sequence[Row], busy: Mapping[str, Spans] = {}) -> Repeat:
    """10 s: a runs from 2 to 3 s, the client waits for it and sends a graph, b runs from 6 to 7 s."""
    tasks = [
        task("a", "worker-1", 1, 2.0, 3.0, decided=2.0, handled=3.0),
        task("b", "worker-1", 1, 6.0, 7.0, decided=6.0, handled=7.0),
    ]
    wait = {"kind": "sync", "start_s": 2.0, "stop_s": 5.0}
    return make_repeat(tasks, graphs=graphs, busy=busy, tables={"calls": [wait, *calls]})


def graph(begin: float, sent: float, received: float) -> Row:
    work = {"materialise_s": 0.0, "order_s": 0.0, "state_s": 0.0, "tasks": 1, "nbytes": 1e6}
    return {"begin_s": begin, "sent_s": sent, "received_s": received, **work}


FIRST, SECOND = graph(0.0, 0.0, 0.0), graph(5.0, 5.0, 5.0)


@pytest.mark.parametrize(
    ("calls", "graphs", "busy", "without_s"),
    [
        ((), (FIRST, SECOND), {}, 10.0),
        ((("gather", 7.0, 9.0),), (FIRST, SECOND), {}, 8.0),
        ((("gather", 3.0, 5.0), ("gather", 7.0, 9.0)), (FIRST, SECOND), {}, 6.0),
        ((("scatter", 0.5, 1.5),), (graph(1.5, 1.5, 1.6), SECOND), {}, 8.9),
        ((), (FIRST, graph(5.0, 5.1, 5.9)), {}, 9.2),
        ((("gather", 7.0, 9.0),), (FIRST, SECOND), {"client": [(7.5, 9.0)]}, 9.5),
        ((("gather", 7.0, 9.0),), (FIRST, SECOND), {"scheduler": [(6.9, 8.5)]}, 9.5),
    ],
)
def test_the_clients_link_is_part_of_the_network(
    calls: Sequence[tuple[str, float, float]],
    graphs: Sequence[Row],
    busy: Mapping[str, Spans],
    without_s: float,
) -> None:
    rows = [{"kind": kind, "start_s": start, "stop_s": stop} for kind, start, stop in calls]
    result = replay(of_a_client(rows, graphs, busy))
    assert result.as_it_was_s == pytest.approx(10.0)
    assert result.without_wire_s == pytest.approx(without_s)
    assert result.transfer_s == pytest.approx(10.0 - without_s)


def test_what_a_faster_network_saves_reaches_the_clients_next_graph() -> None:
    """The client waits for b, whose data was on the wire, then sends c; c's thread is busy until 4 s."""
    last = task("c", "worker-1", 1, 7.0, 8.0, decided=7.0, handled=8.0)
    rows = {"calls": [{"kind": "sync", "start_s": 0.0, "stop_s": 6.5}]}
    result = replay(two_chains(last, stop=8.0, graphs=[FIRST, graph(6.5, 6.5, 6.5)], tables=rows))
    assert (result.as_it_was_s, result.without_wire_s) == (pytest.approx(8.0), pytest.approx(5.0))


@pytest.mark.parametrize(
    ("name", "least_s"), [("slow_link_gather", 3.0), ("slow_link_scatter", 3.0), ("slow_link_graph", 2.7)]
)
def test_six_megabytes_on_the_clients_slow_link_are_the_networks(name: str, least_s: float) -> None:
    """6 MB take 3 s at 16 Mbit/s; a part of the graphs was sent while others were built."""
    result = explain(Trial(RECORDS / name)).summary.replayed
    assert result is not None and result.as_it_was_s - result.without_wire_s > least_s


def test_record_without_its_client_says_nothing_of_the_clients_link() -> None:
    assert not replay(make_repeat([task("a", "worker-1", 1, 2.0, 3.0)])).has_client


def test_data_is_waited_for_once() -> None:
    again = task("c", "worker-2", 2, 6.0, 7.0, ready=5.0, arrived=0.0, decided=0.0, handled=7.0)
    result = replay(two_chains(again, stop=7.0))
    assert (result.as_it_was_s, result.without_wire_s) == (pytest.approx(7.0), pytest.approx(4.0))


def test_a_second_thread_runs_what_is_ready() -> None:
    again = task("c", "worker-2", 3, 5.0, 9.0, ready=5.0, arrived=0.0, decided=0.0, handled=9.0)
    assert replay(two_chains(again, stop=9.0, threads=2)).without_wire_s == pytest.approx(4.0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**9), st.booleans())
@example(seed=134217727, sense=False)  # the report of a task's end left before it ended
def test_a_replay_ends_and_is_no_longer_without_the_wire(seed: int, sense: bool) -> None:
    repeat = random_repeat(seed, sense)
    result = replay(repeat)
    longest = (repeat.tasks.stop - repeat.tasks.start).max(initial=0.0)
    assert longest <= result.without_wire_s + 1e-6 or not len(repeat.tasks)
    assert 0 <= result.without_wire_s <= result.as_it_was_s
    assert result.as_it_was_s - result.without_wire_s <= result.transfer_s + 1e-6 or not sense
    assert mean([result, result]) == result
