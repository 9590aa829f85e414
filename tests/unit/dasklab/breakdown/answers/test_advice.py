"""Advice: each rule above and below its threshold, at most three lines, and silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from dasklab.breakdown.answers.advice import MOST_LINES, RULES, advise
from dasklab.breakdown.answers.advice.rules import Measurements
from dasklab.breakdown.answers.facts import Facts, PrimitiveUse, SlowerInterface
from dasklab.breakdown.answers.facts_memory import WorkerMemory
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import (
    BUILD,
    COLLECTION,
    COMPUTE,
    CPU,
    DISK,
    GATHER,
    GIL,
    HOLDING,
    LINK,
    LOCK,
    LOGIC,
    NOTHING,
    PAUSED,
    PLACEMENT,
    SCATTER,
    WORKER_LAG,
    Bottleneck,
    Cause,
)

from tests.unit.dasklab.breakdown.timelines import Row, Spans, fetch, make_repeat, task

TWO = {"worker-1": 1, "worker-2": 1}
FULL_OF_RESULTS = WorkerMemory("worker-1", *(np.array([value]) for value in (1.0, 9e8, 8e8, 0.0, 1e9)))
LOCK_USE = PrimitiveUse("Lock", "the lock", 4.0, "locked")
EVENT_USE = PrimitiveUse("Event", "go", 4.0, "")
FASTER = SlowerInterface("worker-1", "eth0", 1000.0, "ib0", 100_000.0)


def graph(nbytes: float = 1000.0, tasks: int = 10, received: float = 0.2) -> Row:
    durations = {"materialise_s": 0.0, "order_s": 0.0, "state_s": 0.0}
    return {
        "begin_s": 0.0,
        "sent_s": 0.1,
        "received_s": received,
        "nbytes": nbytes,
        "tasks": tasks,
        **durations,
    }


def equal_tasks(count: int, length: float, worker: str = "worker-1") -> list[Row]:
    return [task(f"add-{n}", worker, 1, n * length, (n + 1) * length) for n in range(count)]


@dataclass(frozen=True)
class Example:
    """A repeat of 10 s of which 3 s are of one kind, and a part of its advice."""

    contains: str
    cause: Cause | None = None
    bottleneck: tuple[Bottleneck, str] | None = None
    tasks: Sequence[Row] = ()
    fetches: Sequence[Row] = ()
    graphs: Sequence[Row] = ()
    busy: dict[str, Spans] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    def measurements(self, seconds: float = 3.0) -> Measurements:
        cells = {(self.cause, "worker-1"): seconds} if self.cause else {}
        path = {(COMPUTE, "worker-1"): 10.0 - seconds, **cells}
        blamed = {self.bottleneck: seconds} if self.bottleneck else {}
        summary = Summary(10.0, 2, 1, breakdown=path, path=path, bottlenecks=blamed)
        repeat = make_repeat(self.tasks, self.fetches, threads=TWO, graphs=self.graphs, busy=self.busy)
        return Measurements(repeat, summary, self.facts)


SLOW_FETCH = [fetch("worker-2", "worker-1", 1.0, 4.0, ["add-0"])]
NEEDS = [task("len-1", "worker-2", 1, 5.0, 6.0, needs=(("add-0", 3e6, ("worker-1",)),))]
LONG = [task("big-1", "worker-1", 1, 1.0, 9.0), *equal_tasks(5, 0.1, "worker-2")]
# fmt: off
EXAMPLES = {
    "large graphs": Example("Graphs of 64 MB took 3.0 s of 10.0 s", BUILD, graphs=[graph(64e6)]),
    "many tasks": Example("Graphs of 20,000 tasks took 3.0 s", BUILD, graphs=[graph(tasks=20_000)]),
    "small tasks": Example("200 tasks took 5 ms each (median)", LOGIC, tasks=equal_tasks(200, 0.005)),
    "one long task": Example(
        "One task, big, took 8.0 s of 10.0 s on worker-1", NOTHING, tasks=LONG
    ),
    "skew": Example(
        "worker-1 did 95 % of the work of 2 workers", NOTHING,
        tasks=[*equal_tasks(20, 0.45), *equal_tasks(1, 0.45, "worker-2")],
    ),
    "locks": Example(
        "the Lock 'the lock' that locked holds, 4.0 thread", LOCK, facts=Facts(primitives=[LOCK_USE])
    ),
    "events, queues and variables": Example("the Event 'go', 4.0", LOCK, facts=Facts(primitives=[EVENT_USE])),
    "too few CPUs": Example("Threads of the scheduler could run", bottleneck=(CPU, "scheduler")),
    "interpreter": Example("Tasks on worker-1 waited 3.0 s of 10.0 s", bottleneck=(GIL, "worker-1")),
    "garbage collection": Example("garbage for 3.0 s", bottleneck=(COLLECTION, "worker-1")),
    "blocked event loops": Example(
        "The event loop of worker-1 was blocked for 4.0 s of 10.0 s, most of it while parse ran",
        bottleneck=(WORKER_LAG, "worker-1"), tasks=[task("parse-1", "worker-1", 1, 1.0, 6.0)],
        busy={"worker-1": [(1.0, 5.0), (7.0, 7.05)]},
    ),
    "spilling": Example(
        "took 3.0 s of 10.0 s; results of add are the largest together, 80 MB", DISK,
        tasks=[*(row | {"nbytes": 40e6} for row in equal_tasks(2, 0.1)),
               task("sum-1", "worker-2", 1, 1.0, 2.0) | {"nbytes": 9.0}],
    ),
    "paused workers": Example(
        "paused for 3.0 s of 10.0 s because their memory was nearly full; results of add", PAUSED,
        tasks=[row | {"nbytes": 40e6} for row in equal_tasks(2, 0.1)],
    ),
    "unmanaged memory": Example("although recorded results together have less than 10 MB", PAUSED),
    "queuing is off": Example(
        "worker-saturation is inf", PAUSED, facts=Facts(settings={"scheduler.worker-saturation": "Infinity"})
    ),
    "results through the scheduler": Example("the client took 3.0 s of 10.0 s", GATHER),
    "scatter": Example("Scattering data took 3.0 s", SCATTER, facts=Facts(scattered=3)),
    "many scattered objects": Example(
        "Scattering 1,500 objects took 3.0 s", SCATTER, facts=Facts(scattered=1500)
    ),
    "avoidable transfers": Example("data that another worker had", bottleneck=(PLACEMENT, "worker-2")),
    "slow link": Example(
        "most of it at worker-2: data moved at 8 Mbit/s; the host of worker-1 sent 900 TCP segments again",
        bottleneck=(LINK, "worker-2"), tasks=NEEDS, fetches=SLOW_FETCH,
        facts=Facts(retransmitted={"worker-1": 900.0, "worker-2": 3.0}),
    ),
    "wrong network interface": Example(
        "worker-1 uses eth0 (1000 Mbit/s) although ib0 has 100000 Mbit/s",
        bottleneck=(LINK, "worker-1"), facts=Facts(slower_interface=FASTER),
    ),
}
# fmt: on


def test_results_from_before_the_record_are_results_too() -> None:
    example = replace(EXAMPLES["unmanaged memory"], facts=Facts(memory=[FULL_OF_RESULTS]))
    assert "paused workers" in titles(example.measurements())


def titles(measurements: Measurements) -> list[str]:
    return [piece.rule.title for piece in advise(measurements)]


def test_every_rule_has_an_example() -> None:
    assert [rule.title for rule in RULES] == list(EXAMPLES)


@pytest.mark.parametrize("title", EXAMPLES)
def test_a_rule_speaks_above_the_threshold_and_is_silent_below(title: str) -> None:
    example = EXAMPLES[title]
    pieces = {piece.rule.title: piece for piece in advise(example.measurements())}
    text = str(pieces[title])
    assert example.contains in text and "(threshold: " in text and pieces[title].rule.page in text
    assert pieces[title].fields()["title"] == title
    if title != "one long task":  # which is about the task's length
        assert title not in titles(example.measurements(seconds=0.9))


def below(title: str, **changes: object) -> Measurements:
    return replace(EXAMPLES[title], **changes).measurements()


OTHERWISE: dict[str, Callable[[], Measurements]] = {
    "large graphs": lambda: below("large graphs", graphs=[graph(9e6)]),
    "many tasks": lambda: below("many tasks", graphs=[graph(tasks=900)]),
    "small tasks": lambda: below("small tasks", tasks=equal_tasks(200, 0.02)),
    "one long task": lambda: below("one long task", tasks=equal_tasks(5, 1.5)),
    "skew": lambda: below("skew", tasks=[*equal_tasks(9, 0.4), *equal_tasks(9, 0.4, "worker-2")]),
    "locks": lambda: below("locks", facts=Facts(primitives=[EVENT_USE])),
    "events, queues and variables": lambda: below("locks"),
    "blocked event loops": lambda: below(
        "blocked event loops", busy={"worker-1": [(n / 10, n / 10 + 0.09) for n in range(90)]}
    ),
    "queuing is off": lambda: below(
        "queuing is off", facts=Facts(settings={"scheduler.worker-saturation": "1.1"})
    ),
    "paused workers": lambda: below("unmanaged memory"),
    "unmanaged memory": lambda: below("paused workers"),
    "scatter": lambda: below("many scattered objects"),
    "many scattered objects": lambda: below("scatter"),
    "slow link": lambda: below("slow link", fetches=[fetch("worker-2", "worker-1", 1.0, 1.1, ["add-0"])]),
    "wrong network interface": lambda: below("wrong network interface", facts=Facts()),
}


@pytest.mark.parametrize("title", OTHERWISE)
def test_a_rule_needs_its_own_evidence(title: str) -> None:
    assert title not in titles(OTHERWISE[title]())


@pytest.mark.parametrize("received", [2.1, 0.11])
def test_a_slow_link_shows_in_graphs(received: float) -> None:
    case = below("slow link", fetches=[], graphs=[graph(5e6, received=received)])
    assert ("slow link" in titles(case)) == (received > 2)


@pytest.mark.parametrize(("delay", "count", "slow"), [(0.02, 20, True), (0.001, 20, False), (0.02, 5, False)])
def test_a_slow_link_shows_in_the_fastest_of_many_messages(delay: float, count: int, slow: bool) -> None:
    rows = [
        task(f"x-{n}", "worker-1", 1, n / 10, n / 10 + 0.1, sent=n - delay, arrived=n) for n in range(count)
    ]
    assert ("slow link" in titles(below("slow link", fetches=[], tasks=rows))) == slow


def test_garbage_of_the_scheduler_is_not_in_tasks() -> None:
    measurements = Example("", bottleneck=(COLLECTION, "scheduler")).measurements()
    assert "garbage collection" not in {piece.rule.title for piece in advise(measurements)}


def test_nothing_is_said_of_a_run_that_computes() -> None:
    repeat = make_repeat(equal_tasks(20, 0.45), threads=TWO)
    summary = Summary(10.0, 2, 1, breakdown={(COMPUTE, "worker-1"): 10.0}, path={(COMPUTE, "worker-1"): 10.0})
    assert titles(Measurements(repeat, summary, Facts())) == []


def test_at_most_three_are_given_and_the_greatest_first() -> None:
    path = {
        (GATHER, "client"): 2.0,
        (SCATTER, "client"): 1.5,
        (DISK, "worker-1"): 1.2,
        (HOLDING, "worker-1"): 3.0,
    }
    summary = Summary(10.0, 2, 1, breakdown=path, path=path, bottlenecks={(CPU, "worker-1"): 2.3})
    case = Measurements(make_repeat(threads=TWO), summary, Facts(primitives=[LOCK_USE]))
    pieces = advise(case)
    assert len(pieces) == MOST_LINES
    assert [piece.seconds for piece in pieces] == [3.0, 2.3, 2.0]


def test_a_run_without_tasks_gets_no_advice() -> None:
    assert titles(Measurements(make_repeat(threads=TWO), Summary(10.0, 2, 1), Facts())) == []
