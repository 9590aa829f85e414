"""Computations of a record are operations, and the path leads through the client from one to the next."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from dasklab.breakdown.answers.bottlenecks.grounds import is_listed, of_path
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.model.causes import (
    BETWEEN,
    BUILD,
    CAUSES,
    COMPUTE,
    GATHER,
    LAG,
    PLAN,
    RESULT,
    SCATTER,
    UPLOAD,
    USER,
    Cause,
)
from dasklab.breakdown.model.repeat import Extent, Repeat
from dasklab.breakdown.prepare.columns import complete_graphs
from dasklab.breakdown.prepare.excerpt import excerpt
from dasklab.breakdown.prepare.operations import Operation, operations, total
from dasklab.records.schema import TABLES

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

LINE = {"file": "note.py", "line": 3, "code": "df.sum().compute()"}


def graph(number: int, begin: float, **more: object) -> Row:
    """Built for 0.1 s, on its way for 0.2 s, prepared for 0.3 s."""
    stages = {"begin_s": begin, "sent_s": begin + 0.1, "received_s": begin + 0.3, "materialise_s": 0.3}
    row = {"graph": number, "client": "me", "nbytes": 10, "tasks": 1, "order_s": 0.0, "state_s": 0.0}
    return row | stages | LINE | more


def call(kind: str, start: float, stop: float) -> Row:
    return {"kind": kind, "start_s": start, "stop_s": stop}


def computed(key: str, start: float, stop: float) -> Row:
    """A task that was decided when its graph had been prepared, and reported at once."""
    stamps = {"ready": start, "executing": start, "done": stop, "reported": stop}
    return task(
        key, "worker-1", 1, start, stop, decided=start, sent=start, arrived=start, handled=stop, **stamps
    )


def actor_calls(*spans: tuple[float, float]) -> pd.DataFrame:
    return pd.DataFrame(spans, columns=["start_s", "stop_s"], dtype=float)


GRAPHS = [graph(1, 1.0), graph(2, 5.0, code="df.min().compute()")]
INTRODUCED = [{"graph": 1, "key": "a", "span": ""}, {"graph": 2, "key": "b", "span": "load/second"}]


@pytest.fixture
def repeat() -> Repeat:
    """Two computes: the user's code runs until 1, from 3.5 to 5, and from 8.5 on."""
    calls = [call("sync", 1.1, 3.5), call("gather", 3.2, 3.4), call("sync", 5.1, 8.5)]
    tasks = [computed("a", 1.6, 3.0), computed("b", 5.6, 8.0)]
    return make_repeat(tasks, threads={"worker-1": 1}, graphs=GRAPHS, tables={"calls": calls})


def found(repeat: Repeat) -> list[Operation]:
    graphs = pd.DataFrame(GRAPHS, columns=list(TABLES["graphs"]))
    return operations(repeat, complete_graphs(graphs), pd.DataFrame(INTRODUCED))


def test_an_operation_lasts_from_its_graph_to_the_return_of_its_call(repeat: Repeat) -> None:
    first, second = found(repeat)
    assert (first.start, first.stop, first.tasks, first.title) == (1.0, 3.5, 1, "df.sum().compute()")
    assert (second.start, second.stop, second.title) == (5.0, 8.5, "load/second")
    assert total([first, second], actor_calls(), repeat) == (1.0, 8.5)
    assert total([first, second], actor_calls((0.5, 0.7), (8.6, 9.0)), repeat) == (0.5, 9.0)
    assert total([], actor_calls(), repeat) == (repeat.start, repeat.stop)


def test_a_call_that_waits_for_two_operations_ends_the_later_one_only() -> None:
    tasks = [computed("a", 1.6, 3.0), computed("b", 5.6, 8.0)]
    calls = {"calls": [call("sync", 1.1, 8.5)]}
    repeat = make_repeat(tasks, threads={"worker-1": 1}, graphs=GRAPHS, tables=calls)
    assert [operation.stop for operation in found(repeat)] == [3.0, 8.5]


def test_graphs_of_one_line_that_follow_each_other_are_one_operation(repeat: Repeat) -> None:
    graphs = pd.DataFrame([graph(1, 1.0), graph(2, 1.2), graph(3, 9.0)], columns=list(TABLES["graphs"]))
    introduced = pd.DataFrame(
        [{"graph": n, "key": key, "span": ""} for n, key in ((1, "a"), (2, "b"), (3, "c"))]
    )
    assert [operation.tasks for operation in operations(repeat, complete_graphs(graphs), introduced)] == [
        2,
        1,
    ]


def test_a_loop_that_waits_for_each_task_beside_another_client_is_one_operation() -> None:
    """Each turn takes 2 s; another graph arrives meanwhile, and the keys are in no order."""
    calls = [call("sync", n + 0.1, n + 2.0) for n in (1.0, 3.0, 5.0)]
    tasks = [computed(key, n + 0.6, n + 1.9) for key, n in (("a", 1.0), ("b", 3.0), ("c", 5.0))]
    tasks.append({**computed("theirs", 4.0, 9.0), "worker": "worker-2"})
    rows = [graph(n, start) for n, start in ((1, 1.0), (2, 3.0), (4, 5.0))]
    rows.append(graph(3, 3.5, client="other", file=None, line=None, code=None))
    repeat = make_repeat(tasks, graphs=rows, tables={"calls": calls})
    keys = {3: "theirs", 1: "a", 4: "c", 2: "b"}
    introduced = pd.DataFrame([{"graph": n, "key": key, "span": ""} for n, key in keys.items()], [7, 1, 9, 3])
    graphs = complete_graphs(pd.DataFrame(rows, columns=list(TABLES["graphs"])))
    loop, theirs = operations(repeat, graphs, introduced)
    assert (loop.start, loop.stop, loop.tasks) == (1.0, 7.0, 3)
    assert (theirs.start, theirs.stop, theirs.tasks) == (3.5, 9.0, 1)


def test_graphs_that_tasks_send_belong_to_the_operation_of_the_task(repeat: Repeat) -> None:
    inside = graph(2, 1.2, client="Client-worker-1")
    graphs = pd.DataFrame([graph(1, 1.0), inside], columns=list(TABLES["graphs"]))
    assert len(operations(repeat, complete_graphs(graphs), pd.DataFrame(INTRODUCED))) == 1


def path(repeat: Repeat) -> list[tuple[float, float, Cause]]:
    intervals = critical_path(repeat)
    columns = (intervals.start.round(6).tolist(), intervals.stop.round(6).tolist(), intervals.cause.tolist())
    return [(start, stop, CAUSES[code]) for start, stop, code in zip(*columns, strict=True)]


def test_the_path_leads_through_the_client(repeat: Repeat) -> None:
    assert path(repeat) == [
        (0.0, 1.0, USER),
        (1.0, 1.1, BUILD),
        (1.1, 1.3, UPLOAD),
        (1.3, 1.6, PLAN),
        (1.6, 3.0, COMPUTE),
        (3.0, 3.2, RESULT),
        (3.2, 3.4, GATHER),
        (3.4, 3.5, RESULT),
        (3.5, 5.0, USER),
        (5.0, 5.1, BUILD),
        (5.1, 5.3, UPLOAD),
        (5.3, 5.6, PLAN),
        (5.6, 8.0, COMPUTE),
        (8.0, 8.5, RESULT),
        (8.5, 10.0, USER),
    ]


def test_the_path_of_one_operation_has_nothing_of_the_other(repeat: Repeat) -> None:
    _, second = found(repeat)
    rows = path(excerpt(repeat, second.start, second.stop))
    assert (rows[0][0], rows[-1][1]) == (5.0, 8.5)
    assert USER not in {cause for *_, cause in rows}


def test_scattered_data_is_the_most_specific_cause() -> None:
    calls = [call("sync", 1.0, 4.0), call("scatter", 1.5, 3.5)]
    repeat = make_repeat(threads={"worker-1": 1}, tables={"calls": calls})
    assert path(repeat) == [
        (0.0, 1.0, USER), (1.0, 4.0, SCATTER), (4.0, 10.0, USER)
    ]  # fmt: skip
    assert total([], actor_calls(), repeat) == (1.5, 3.5)


def test_a_task_of_a_worker_that_joined_comes_after_what_the_others_computed() -> None:
    """Its graph had been prepared long before: the other tasks of the graph ran meanwhile."""
    first = computed("first", 1.6, 3.0)
    late = computed("late", 4.0, 8.0) | {"worker": "worker-2", "thread": 2, "stimulus": "register"}
    calls = [call("sync", 1.1, 8.0)]
    threads = {"worker-1": 1, "worker-2": 1}
    repeat = make_repeat([first, late], threads=threads, graphs=GRAPHS[:1], tables={"calls": calls})
    seconds = {cause: stop - start for start, stop, cause in path(repeat)}
    assert seconds[PLAN] == pytest.approx(0.3)
    assert sum(stop - start for start, stop, cause in path(repeat) if cause is COMPUTE) == pytest.approx(5.4)


def test_a_rescheduled_task_comes_after_what_it_needs() -> None:
    """A shuffle's tasks are chosen again; no task's end made the scheduler do so."""
    first = computed("transfer", 1.6, 3.0)
    second = computed("unpack", 4.0, 6.0) | {
        "stimulus": "reschedule",
        "needs": [("transfer", 8.0, ("worker-1",))],
    }
    repeat = make_repeat(
        [first, second], threads={"worker-1": 1}, graphs=GRAPHS[:1], unfinished=[(1.0, 2), (6.0, 0)]
    )
    rows = path(repeat)
    assert (1.6, 3.0, COMPUTE) in rows and (4.0, 6.0, COMPUTE) in rows
    assert LAG not in {cause for *_, cause in rows}


def test_record_that_was_cut_off_where_an_operation_began_is_explained_as_a_whole() -> None:
    begun = Operation(1, "", ("", 0, ""), 4.0, 4.0, 1)
    assert total([begun], pd.DataFrame(columns=list(TABLES["actor_calls"])), make_repeat(stop=10.0)) == (
        0.0,
        10.0,
    )


def test_a_graph_stays_when_the_clocks_say_that_it_arrived_before_it_began() -> None:
    graphs = [graph(1, 1.0, received_s=0.998)]
    late = make_repeat([computed("a", 1.6, 3.0)], threads={"worker-1": 1}, graphs=graphs)
    assert len(excerpt(late, 1.0, 3.0).graphs) == 1
    assert len(excerpt(late, 3.1, 4.0).graphs) == 0


def test_client_that_does_not_wait_for_a_task_runs_its_own_code() -> None:
    """It waits for ``a`` until 3.5. Then it plots until 7, while ``b`` runs, and gathers what is there."""
    calls = [call("sync", 1.1, 3.5), call("sync", 7.0, 7.2), call("gather", 7.0, 7.2)]
    tasks = [computed("a", 1.6, 3.0), computed("b", 3.0, 6.0)]
    repeat = make_repeat(tasks, threads={"worker-1": 1}, graphs=GRAPHS[:1], tables={"calls": calls})
    assert path(repeat)[-4:] == [(3.0, 3.5, RESULT), (3.5, 7.0, USER), (7.0, 7.2, GATHER), (7.2, 10.0, USER)]


def test_what_dask_does_in_a_call_before_it_builds_the_graph_is_no_code_of_the_users() -> None:
    """The line is seen from 0.4 on; the client hears of the graph at 1, and the task ends at 3."""
    lines = [{"start_s": 0.4, "stop_s": 0.97, "waits": 3} | LINE]
    tables = {"calls": [call("sync", 1.1, 3.5)], "lines": lines}
    repeat = make_repeat([computed("a", 1.6, 3.0)], threads={"worker-1": 1}, graphs=GRAPHS[:1], tables=tables)
    assert path(repeat)[:3] == [(0.0, 0.4, USER), (0.4, 0.97, BUILD), (0.97, 1.0, USER)]
    assert is_listed(repeat, critical_path(repeat)).all()
    (grounds,) = [some for some in of_path(repeat, critical_path(repeat)) if "graphs" in some.names]
    assert {item.name for item in grounds.items} == {"graph 1: 1 task, 10 bytes"}


def test_path_of_a_watched_cluster_follows_each_clients_own_graphs() -> None:
    """The second graph of ``me`` arrives at 5; a task of another client ended at 4.9."""
    unknown = {"begin_s": None, "sent_s": None}
    graphs = [
        graph(1, 1.0, received_s=1.3) | unknown,
        graph(2, 2.0, received_s=2.0, client="other") | unknown,
        graph(3, 5.0, received_s=5.0) | unknown,
    ]
    tasks = [computed("a", 1.6, 3.0), computed("other", 3.0, 4.9), computed("b", 5.3, 8.0)]
    introduced = [
        {"graph": number, "key": key, "span": "", "client": client}
        for number, key, client in ((1, "a", "me"), (2, "other", "other"), (3, "b", "me"))
    ]
    unfinished = [(1.3, 1), (2.0, 2), (3.0, 1), (4.9, 0), (5.0, 1), (8.0, 0)]
    repeat = make_repeat(
        tasks,
        threads={"worker-1": 1},
        graphs=graphs,
        unfinished=unfinished,
        tables={"introduced": introduced},
    )
    rows = path(excerpt(replace(repeat, extent=Extent.WATCHED), 1.3, 8.0))
    assert [(start, stop) for start, stop, cause in rows if cause is COMPUTE] == [(1.6, 3.0), (5.3, 8.0)]
    assert [(start, stop) for start, stop, cause in rows if cause is BETWEEN] == [(3.0, 4.9), (4.9, 5.0)]


def test_path_leads_from_one_computation_to_the_one_before_where_no_graphs_are_known() -> None:
    """As with versions of Dask that do not report graphs."""
    calls = [call("sync", 1.1, 3.5), call("sync", 5.1, 8.5)]
    tasks = [computed("a", 1.6, 3.0), computed("b", 5.6, 8.0)]
    unfinished = [(1.5, 1), (3.0, 0), (5.5, 1), (8.0, 0)]
    repeat = make_repeat(tasks, threads={"worker-1": 1}, unfinished=unfinished, tables={"calls": calls})
    rows = path(repeat)
    assert [(start, stop) for start, stop, cause in rows if cause is COMPUTE] == [(1.6, 3.0), (5.6, 8.0)]
    assert (3.5, 5.1, USER) in rows
