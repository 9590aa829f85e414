"""Advice: each rule above and below its threshold, at most three lines, and silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from dasklab.breakdown.answers.advice import MOST_LINES, RULES, advise, pages
from dasklab.breakdown.answers.advice.rules import Measurements
from dasklab.breakdown.answers.facts.facts import Facts, PrimitiveUse, SlowerInterface
from dasklab.breakdown.answers.facts.failures import Failures, TaskAttempt
from dasklab.breakdown.answers.facts.memory import WorkerMemory
from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import (
    AGAIN,
    BUILD,
    COLLECTION,
    COMPUTE,
    CPU,
    DISK,
    EXTERNAL,
    GATHER,
    GIL,
    HOLDING,
    LAG,
    LINK,
    LOCK,
    LOGIC,
    MEASURE,
    NO_WORKER,
    NOTHING,
    PAUSED,
    PEER,
    PLACEMENT,
    QUEUE,
    SCATTER,
    SERIALISE,
    USER_CODE,
    WORKER_LAG,
    Bottleneck,
    Cause,
)
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.prepare.deaths import Death
from dasklab.breakdown.prepare.gather_evidence import WITHOUT_RESULT

from tests.unit.dasklab.breakdown.timelines import Row, Spans, fetch, idle_for, make_repeat, task

TWO = {"worker-1": 1, "worker-2": 1}
FULL_OF_RESULTS = WorkerMemory("worker-1", *(np.array([value]) for value in (1.0, 9e8, 8e8, 0.0, 1e9)))
LOCK_USE = PrimitiveUse("Lock", "the lock", 4.0, "locked")
EVENT_USE = PrimitiveUse("Event", "go", 4.0, "")
KEPT = [  # the first keeps the only thread, which the second could have had
    task("wait-1", "worker-1", 1, 1.0, 6.0, decided=0.9),
    task("load-1", "worker-1", 1, 6.0, 7.0, decided=0.9),
]  # fmt: skip
FOR_EVENT = {
    "worker": "worker-1",
    "start_s": 2.0,
    "stop_s": 6.0,
    "key": "wait-1",
    "kind": "Event",
    "name": "go",
}
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


def stacks(activity: str, reason: str = "blocked", **more: Any) -> list[Row]:
    """30 samples of worker-1 that agree."""
    row = {"node": "worker-1", "seconds": 0.1, "reason": reason, "key": "", "name": "", "stack": []}
    return [row | more | {"time_s": 1.0 + n / 10, "activity": activity} for n in range(30)]


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
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=lambda: TWO)
    line: tuple[str, int, str] | None = None
    idle_share: float = 0.0

    def measurements(self, seconds: float = 3.0) -> Measurements:
        cells = {(self.cause, "worker-1"): seconds} if self.cause else {}
        path = {(COMPUTE, "worker-1"): 10.0 - seconds, **cells}
        blamed = {self.bottleneck: seconds} if self.bottleneck else {}
        lines = {(USER_CODE, self.line): seconds} if self.line else {}
        summary = Summary(10.0, 2, 1, breakdown=path, path=path, bottlenecks=blamed, client_lines=lines)
        repeat = make_repeat(
            self.tasks,
            self.fetches,
            threads=self.threads,
            graphs=self.graphs,
            busy=self.busy,
            tables=self.tables,
        )
        if self.idle_share:
            shares = idle_for(repeat, self.idle_share)
            repeat = replace(repeat, evidence=replace(repeat.evidence, shares=shares))
        return Measurements(repeat, summary, self.facts)


SLOW_FETCH = [fetch("worker-2", "worker-1", 1.0, 4.0, ["add-0"])]
NEEDS = [task("len-1", "worker-2", 1, 5.0, 6.0, needs=(("add-0", 3e6, ("worker-1",)),))]
NEEDS_TWO = [
    task("len-1", "worker-2", 1, 5.0, 6.0, needs=tuple((x, 3e6, ("worker-1",)) for x in ("add-0", "x")))
]
LONG = [task("big-1", "worker-1", 1, 1.0, 9.0), *equal_tasks(5, 0.1, "worker-2")]
FOUR = {"worker-1": 2, "worker-2": 2}
TAIL = [
    *(task(f"load-{n}", f"worker-{1 + n % 2}", n % 4, n // 4 / 10, (n // 4 + 1) / 10) for n in range(60)),
    task("load-60", "worker-1", 0, 2.0, 8.0), task("load-61", "worker-2", 1, 2.0, 8.0),
]  # fmt: skip
CROWDED = [*equal_tasks(20, 0.45), *equal_tasks(1, 0.45, "worker-2")]
HELD = [row | {"needs": (("x", 9.0, ("worker-1",)),)} for row in CROWDED]
SAME_AGAIN = [task(f"load-{n % 4}", "worker-1", 1, n, n + 0.9) for n in range(8)]
TWO_GRAPHS = [graph(), graph(received=3.95)]
ONE_BY_ONE = {
    "tasks": equal_tasks(6, 1.0),
    "graphs": [graph(tasks=1, received=n) for n in range(6)],
    "tables": {"calls": [{"kind": "sync", "start_s": n, "stop_s": n + 1.0} for n in range(6)]},
}
FAILED = [TaskAttempt("f-1", "f", "worker-1", n + 1.0, 1.0, "OSError: gone", True) for n in range(4)]
DEATH = Death(4.0, "worker-2", 0.0, 0.0, 3, 2)
FIRST_SLOW = [
    task(f"f-{worker}-{n}", worker, 1, 4.0 + n / 10 if n else 0.0, 4.1 + n / 10 if n else 4.0)
    for worker in TWO for n in range(9)
]  # fmt: skip
SLOW_ONE = [*equal_tasks(20, 0.1), *equal_tasks(8, 0.5, "worker-2")]
TURNS = [(0.0, 1.0), (0.0, 2.0), *((n - 2.0, float(n)) for n in range(3, 9))]
STAGGERED = [task(f"write-{n}", "worker-1", n % 2, *ends) for n, ends in enumerate(TURNS)]
TREE = [task("agg-tree-1", "worker-1", 1, 1.0, 9.0)]
RECHUNK = [task("rechunk-merge-1", "worker-1", 1, 1.0, 9.0)]
SHUFFLE = [task(f"split-taskshuffle-{n}", "worker-1", 1, n / 200, (n + 1) / 200) for n in range(200)]
OVERLAP = [task(f"overlap-{n}", "worker-1", 1, n / 200, (n + 1) / 200) for n in range(200)]
OPENING = ("study.py", 7, "data = xr.open_mfdataset(files)")
BLOCKED = {"worker-1": [(1.0, 5.0), (7.0, 7.05)]}
PARSE = [task("parse-1", "worker-1", 1, 1.0, 6.0)]
GATHERING = {"calls": [{"kind": "gather", "start_s": 6.0, "stop_s": 9.0}]}
CPU_USE = [
    {"node": "worker-1", "time_s": t, "cpu_s": 2 * t, "waiting_s": 2 * t, "loop_waiting_s": 0.0}
    for t in (0.0, 10.0)
]


def machine_use(own_s: float, used_s: float, node: str = "worker-1") -> Mapping[str, Sequence[Row]]:
    """A process on a machine with two CPUs, in a container of its own, and another one that did nothing."""
    use = {node: own_s, "client": 0.0}
    return {
        "machines": [{"node": name, "machine": "host", "cpus": 2} for name in use],
        "cpu": [
            {"node": name, "time_s": t, "cpu_s": own * t / 10, "machine_s": 1e6 + used_s * t / 10}
            for name, own in use.items()
            for t in (0.0, 10.0)
        ],
    }


# fmt: off
EXAMPLES = {
    "failed attempts": Example(
        "4 attempts of f failed (OSError: gone) and had to be repeated", tasks=equal_tasks(4, 1.0),
        facts=Facts(failures=Failures(attempts=FAILED)),
    ),
    "workers ended for their memory": Example(
        "worker-2 died, ended by a nanny because of memory: results", AGAIN,
        facts=Facts(failures=Failures(deaths=[replace(DEATH, limit_bytes=1e9)])),
    ),
    "workers that died": Example(
        "worker-2 died without having been asked to leave: results", AGAIN,
        facts=Facts(failures=Failures(deaths=[DEATH])),
    ),
    "the same computed again": Example(
        "load ran 8 times for 4 keys although no result was lost; 4 repetitions and 1 of other tasks took",
        tasks=[*SAME_AGAIN, *(task("sum-1", "worker-2", 1, n, n + 0.4) for n in (1.0, 5.0))],
        graphs=TWO_GRAPHS,
    ),
    "one result at a time": Example("6 computations came one after another", **ONE_BY_ONE),
    "large graphs": Example("Graphs of 64 MB took 3.0 s of 10.0 s", BUILD, graphs=[graph(64e6)]),
    "many tasks": Example("Graphs of 20,000 tasks took 3.0 s", BUILD, graphs=[graph(tasks=20_000)]),
    "small tasks": Example("200 tasks took 5 ms each (median)", LOGIC, tasks=equal_tasks(200, 0.005)),
    "locks": Example(
        "the Lock 'the lock' that locked holds, 4.0 thread", LOCK, facts=Facts(primitives=[LOCK_USE])
    ),
    "events, queues and variables": Example(
        "the Event 'go', and others wanted these threads for 4.0",
        LOCK,
        facts=Facts(primitives=[EVENT_USE]),
        tasks=KEPT,
        tables={"waits": [FOR_EVENT]},
    ),
    "reduction into one partition": Example("One task, agg-tree, took 8.0 s", NOTHING, tasks=TREE),
    "rechunking by tasks": Example("One task, rechunk-merge, took 8.0 s", NOTHING, tasks=RECHUNK),
    "shuffle by tasks": Example("200 tasks took 5 ms each", LOGIC, tasks=SHUFFLE),
    "overlapping chunks": Example("200 tasks took 5 ms each", LOGIC, tasks=OVERLAP),
    "files opened one by one": Example("open_mfdataset opened files one by one for 3.0 s", line=OPENING),
    "one long task": Example(
        "One task, big, took 8.0 s on worker-1, and for 8.0 s of 10.0 s a third of the", NOTHING, tasks=LONG
    ),
    "few long tasks": Example(
        "2 of 62 tasks took up to 6.0 s (load on worker-1; its median is 0.1 s), and for 6.0 s",
        NOTHING,
        tasks=TAIL,
        threads=FOUR,
    ),
    "skew of data": Example("worker-1 did 95 % of the work of 2 workers", QUEUE, tasks=HELD),
    "restricted tasks": Example("although they need no data that it holds", QUEUE, tasks=CROWDED),
    "no worker yet": Example("No worker was there for 3.0 s of 10.0 s", NO_WORKER),
    "a slow worker": Example("Tasks on worker-2 took x 5.0 as long", tasks=SLOW_ONE),
    "slow first tasks": Example(
        "The first f-worker on each worker took 4 s or more, later ones 0.1", tasks=FIRST_SLOW
    ),
    "a lock of the process": Example(
        "Tasks of write that began together on a worker ended one after another", EXTERNAL, tasks=STAGGERED,
        threads=FOUR, idle_share=1.0,
    ),
    "too few CPUs": Example(
        "Threads of the scheduler could run", bottleneck=(CPU, "scheduler"), threads=FOUR,
        tables=machine_use(19.0, 20.0, "scheduler"),
    ),
    "CPUs that something used": Example("Threads of worker-1 could run", bottleneck=(CPU, "worker-1")),
    "CPUs that other programs use": Example(
        "programs that are none of the cluster's used 15.0 s of its CPUs", bottleneck=(CPU, "worker-1"),
        tables=machine_use(5.0, 20.0),
    ),
    "threads of libraries": Example(
        "each of its tasks kept 4.4 threads busy", bottleneck=(CPU, "worker-1"), tasks=equal_tasks(9, 1.0),
        tables={"cpu": CPU_USE},
    ),
    "interpreter": Example("Tasks on worker-1 waited 3.0 s", bottleneck=(GIL, "worker-1"), threads=FOUR),
    "garbage collection": Example("garbage for 3.0 s", bottleneck=(COLLECTION, "worker-1")),
    "garbage collection of the scheduler": Example(
        "garbage for 3.0 s of 10.0 s on the scheduler", bottleneck=(COLLECTION, "scheduler"),
        tasks=equal_tasks(1000, 0.01),
    ),
    "tasks that block the event loop": Example(
        "The run waited 3.0 s of 10.0 s for the blocked event loop of worker-1, most of it while parse ran",
        bottleneck=(WORKER_LAG, "worker-1"), tasks=PARSE, busy=BLOCKED,
    ),
    "imports in the event loop": Example(
        "for the blocked event loop of worker-1, most of it by importing pandas",
        bottleneck=(WORKER_LAG, "worker-1"), busy=BLOCKED, tables={"stacks": stacks("import", name="pandas")},
    ),
    "slow __sizeof__": Example(
        "most of it by measuring the sizes of results in Model.__sizeof__ (model.py)",
        bottleneck=(WORKER_LAG, "worker-1"), busy=BLOCKED,
        tables={"stacks": stacks("sizeof", stack=["Model.__sizeof__ (/me/model.py:3)"])},
    ),
    "blocked event loops": Example(
        "The run waited 3.0 s of 10.0 s for the blocked event loop of worker-1, and no kind",
        bottleneck=(WORKER_LAG, "worker-1"), busy=BLOCKED,
    ),
    "spilling": Example(
        "for spilled data, 70 MB written and read; results of add are the largest together, 80 MB", DISK,
        tasks=[*(row | {"nbytes": 40e6} for row in equal_tasks(2, 0.1)),
               task("sum-1", "worker-2", 1, 1.0, 2.0) | {"nbytes": 9.0}],
        facts=Facts(spilled_bytes=70e6),
    ),
    "paused workers": Example(
        "Workers were paused because their memory was nearly full; results of add", PAUSED,
        tasks=[row | {"nbytes": 40e6} for row in equal_tasks(2, 0.1)],
    ),
    "unmanaged memory": Example("although Dask manages less than 10 MB of it", PAUSED),
    "queuing is off": Example(
        "worker-saturation is inf", PAUSED, facts=Facts(settings={"scheduler.worker-saturation": "Infinity"})
    ),
    "results through the scheduler": Example(
        "Moving 80 MB of results through the scheduler to the client took 3.0 s", GATHER, tables=GATHERING,
        tasks=[row | {"nbytes": 40e6} for row in equal_tasks(2, 0.1)],
    ),
    "results over a slow link": Example(
        "Moving 6 MB of results to the client took 3.0 s of 10.0 s, at 16 Mbit/s", GATHER, tables=GATHERING,
        tasks=[row | {"nbytes": 3e6} for row in equal_tasks(2, 0.1)],
    ),
    "unpickling at the client": Example(
        "busy for 3.0 s of 10.0 s while 2 results of 200 bytes arrived", GATHER, tables=GATHERING,
        tasks=[row | {"nbytes": 100.0} for row in equal_tasks(2, 0.1)], busy={"client": [(6.0, 9.0)]},
    ),
    "scatter": Example("Scattering data took 3.0 s", SCATTER, facts=Facts(scattered=3)),
    "many scattered objects": Example(
        "Scattering 1,500 objects took 3.0 s", SCATTER, facts=Facts(scattered=1500)
    ),
    "avoidable transfers": Example(
        "data that another worker had, where threads were free", PEER, bottleneck=(PLACEMENT, "worker-2"),
        tasks=[*equal_tasks(1, 0.1), *NEEDS_TWO],
        fetches=[fetch("worker-2", "worker-1", 1.0, 4.0, ["add-0", "x"])],
    ),
    "slow serialising": Example(
        "for results of add to be serialised", SERIALISE, tasks=NEEDS,
        fetches=[fetch("worker-2", "worker-1", 1.0, 4.0, ["add-0"], deserialise_s=3.0)],
    ),
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
OF_TASKS = {
    "one long task", "few long tasks", "reduction into one partition", "rechunking by tasks",
    "failed attempts", "the same computed again", "one result at a time", "a slow worker", "slow first tasks",
}
"""Rules that are about the lengths of tasks, not about seconds of a cause."""
# fmt: on


def test_a_lock_that_was_seen_is_named() -> None:
    seen = {"stacks": stacks("lock", "waiting", key="write-1", name="SerializableLock")}
    example = replace(EXAMPLES["a lock of the process"], tasks=TOGETHER, tables=seen)
    (piece,) = [some for some in advise(example.measurements()) if some.rule.title == "a lock of the process"]
    assert str(piece).startswith(
        "Tasks of write waited for a lock of their process (SerializableLock), in 30 of"
    )


def test_a_pause_is_as_long_as_the_worker_was_paused() -> None:
    """It costs all of that where the path waited for it, half of it where one of two threads did."""
    pause = {"kind": "worker-status-change", "subject": "worker-1"}
    events = [
        pause | {"time_s": 2.0, "detail": json.dumps({"prev": "running", "status": "paused"})},
        pause | {"time_s": 8.0, "detail": json.dumps({"prev": "paused", "status": "running"})},
    ]
    example = replace(EXAMPLES["unmanaged memory"], tables={"events": events})
    (piece,) = [some for some in advise(example.measurements()) if some.rule.title == "unmanaged memory"]
    assert piece.sentence.startswith("worker-1 was paused for 6.0 s of 10.0 s because its memory")


def test_code_that_blocks_the_scheduler_is_not_dasks_work() -> None:
    own = {"stacks": [row | {"node": "scheduler"} for row in stacks("", stack=["burn (/me/plugin.py:3)"])]}
    example = replace(EXAMPLES["small tasks"], tables=own)
    assert "small tasks" not in titles(example.measurements())


def test_tasks_that_take_turns_need_no_fewer_threads() -> None:
    case = EXAMPLES["too few CPUs"].measurements()
    assert "too few CPUs" in titles(case)
    both = {(CPU, "scheduler"): 3.0, (GIL, "worker-1"): 2.0}
    assert "too few CPUs" not in titles(replace(case, summary=replace(case.summary, bottlenecks=both)))


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
    assert example.contains in text and "This accounts for " in text and pieces[title].rule.page in text
    assert pieces[title].fields()["title"] == title
    if title not in OF_TASKS:
        assert title not in titles(example.measurements(seconds=0.9))


@pytest.mark.parametrize("title", EXAMPLES)
def test_a_rule_names_its_evidence(title: str) -> None:
    """Tasks, events, or the part of the breakdown that the example's seconds are in."""
    example = EXAMPLES[title]
    pieces = {piece.rule.title: piece for piece in advise(example.measurements())}
    rule, symptom = pieces[title].rule, pieces[title].symptom
    assert bool(len(symptom.tasks) or symptom.events) != bool(rule.rests_on)
    if example.bottleneck and rule.rests_on:
        assert example.bottleneck[0] in rule.rests_on
    elif example.cause and rule.rests_on:
        assert {example.cause, example.cause.bottleneck} & set(rule.rests_on)


def below(title: str, **changes: object) -> Measurements:
    return replace(EXAMPLES[title], **changes).measurements()


GIVEN_UP = [TaskAttempt(f"f-{n}", "f", "worker-1", n + 1.0, 1.0, "", False) for n in range(4)]
CHAIN = [
    row | {"needs": ((f"add-{n - 1}", 9.0, ()),)} if n else row for n, row in enumerate(equal_tasks(6, 1.0))
]
PAIRS = [*equal_tasks(6, 1.0), *(task(f"sub-{n}", "worker-2", 1, n, n + 1.0) for n in range(6))]
FOUR_LONG = [task(f"load-{n}", f"worker-{1 + n % 2}", n // 2, 1.0, 9.0) for n in range(4)]
SHRINKING = [
    task(f"f-{worker}-{n}", worker, 1, n, n + (10 - n) / 10) for worker in TWO for n in range(10)
]  # fmt: skip
TOGETHER = [task(f"write-{n}", "worker-1", n % 2, n // 2, n // 2 + 1.0) for n in range(8)]
HALF_ON_EACH = [
    task(
        "len-1", "worker-2", 1, 5.0, 6.0,
        needs=(("add-0", 3e6, ("worker-1",)), ("x", 3e6, ("worker-2",))),
    )
]  # fmt: skip
BUSY_HOLDER = [task("long-1", "worker-1", 1, 0.5, 6.0), *NEEDS_TWO]


def left(title: str) -> Measurements:
    """An example in which a worker left."""
    case = EXAMPLES[title].measurements()
    return replace(case, repeat=replace(case.repeat, left={"worker-2": 5.0}))


def lost(title: str) -> Measurements:
    """An example in which the results of all tasks had been lost."""
    case = EXAMPLES[title].measurements()
    evidence = replace(case.repeat.evidence, again=np.arange(len(case.repeat.tasks)))
    return replace(case, repeat=replace(case.repeat, evidence=evidence))


def waiting(title: str) -> Measurements:
    """An example in which all tasks waited for a queue."""
    case = EXAMPLES[title].measurements()
    tasks = case.repeat.tasks
    locks = IntervalSets(np.arange(len(tasks)), tasks.start, tasks.stop)
    return replace(case, repeat=replace(case.repeat, evidence=replace(case.repeat.evidence, locks=locks)))


def held_up(title: str) -> Measurements:
    """An example in which all tasks used no CPU, because others held the interpreter."""
    case = replace(EXAMPLES[title], idle_share=1.0).measurements()
    shares = case.repeat.evidence.shares
    shares = replace(shares, interpreter=np.ones(len(shares.idle)))
    return replace(case, repeat=replace(case.repeat, evidence=replace(case.repeat.evidence, shares=shares)))


def with_cpu_wait(title: str) -> Measurements:
    """An example in which threads waited for a CPU for longer."""
    case = EXAMPLES[title].measurements()
    blamed = {**case.summary.bottlenecks, (CPU, "worker-1"): 4.0}
    return replace(case, summary=replace(case.summary, bottlenecks=blamed))


OTHERWISE: dict[tuple[str, str], Callable[[], Measurements]] = {
    ("failed attempts", "given up"): lambda: below(
        "failed attempts", facts=Facts(failures=Failures(attempts=GIVEN_UP))
    ),
    ("workers ended for their memory", "another reason"): lambda: below("workers that died"),
    ("workers that died", "memory"): lambda: below("workers ended for their memory"),
    ("workers that died", "after the repeat"): lambda: below(
        "workers that died", facts=Facts(failures=Failures(deaths=[replace(DEATH, time=11.0)]))
    ),
    **{
        ("the same computed again", status): partial(
            below,
            "the same computed again",
            tasks=[row | {"status": status} for row in SAME_AGAIN[:4]] + SAME_AGAIN[4:],
        )
        for status in WITHOUT_RESULT
    },
    ("the same computed again", "one graph"): lambda: below("the same computed again", graphs=[graph()]),
    ("the same computed again", "results were lost"): lambda: lost("the same computed again"),
    ("one result at a time", "each needs the one before"): lambda: below("one result at a time", tasks=CHAIN),
    ("one result at a time", "two at a time"): lambda: below("one result at a time", tasks=PAIRS),
    ("one result at a time", "nobody waited"): lambda: below("one result at a time", tables={}),
    ("large graphs", "small"): lambda: below("large graphs", graphs=[graph(9e6)]),
    ("many tasks", "few"): lambda: below("many tasks", graphs=[graph(tasks=900)]),
    ("small tasks", "large"): lambda: below("small tasks", tasks=equal_tasks(200, 0.02)),
    ("small tasks", "shuffle"): lambda: below("shuffle by tasks"),
    ("shuffle by tasks", "others"): lambda: below("small tasks"),
    ("overlapping chunks", "others"): lambda: below("small tasks"),
    ("locks", "an event"): lambda: below("locks", facts=Facts(primitives=[EVENT_USE])),
    ("events, queues and variables", "a lock"): lambda: below("locks"),
    ("events, queues and variables", "no other task"): lambda: below(
        "events, queues and variables", tasks=KEPT[:1]
    ),
    ("reduction into one partition", "others"): lambda: below("one long task"),
    ("rechunking by tasks", "others"): lambda: below("one long task"),
    ("files opened one by one", "in parallel"): lambda: below(
        "files opened one by one", line=("study.py", 7, "open_mfdataset(files, parallel=True)")
    ),
    ("one long task", "several"): lambda: below("one long task", tasks=equal_tasks(5, 1.5)),
    ("one long task", "waits"): lambda: waiting("one long task"),
    ("one long task", "waits for the interpreter"): lambda: held_up("one long task"),
    ("one long task", "short"): lambda: below("one long task", tasks=equal_tasks(1, 0.4)),
    ("one long task", "a worker left"): lambda: left("one long task"),
    ("one long task", "attempts failed"): lambda: below(
        "one long task", tasks=[LONG[0] | {"status": "error"}, *LONG[1:]]
    ),
    ("one long task", "made by a collection"): lambda: below(
        "one long task", tasks=[task("rechunk-merge-rechunk-transfer-1", "worker-1", 1, 1.0, 9.0)]
    ),
    ("few long tasks", "half of all tasks"): lambda: below("few long tasks", tasks=TAIL[-2:]),
    ("few long tasks", "all threads busy"): lambda: below("few long tasks", tasks=FOUR_LONG),
    ("few long tasks", "wait"): lambda: waiting("few long tasks"),
    ("skew of data", "even"): lambda: below("skew of data", tasks=PAIRS),
    ("skew of data", "restricted"): lambda: below("restricted tasks"),
    ("skew of data", "a worker left"): lambda: left("skew of data"),
    ("restricted tasks", "data"): lambda: below("skew of data"),
    ("restricted tasks", "nothing queued"): lambda: below("restricted tasks", cause=NOTHING),
    ("restricted tasks", "a slow worker"): lambda: below(
        "restricted tasks", tasks=[*equal_tasks(9, 0.5), *equal_tasks(9, 0.1, "worker-2")]
    ),
    ("restricted tasks", "a worker was full"): lambda: below(
        "restricted tasks", facts=Facts(memory=[FULL_OF_RESULTS], memory_thresholds={"pause": 0.8})
    ),
    ("restricted tasks", "a worker left"): lambda: left("restricted tasks"),
    ("no worker yet", "a restart"): lambda: below(
        "no worker yet", facts=Facts(failures=Failures(restarts=[1.0]))
    ),
    ("a slow worker", "waits for a lock"): lambda: waiting("a slow worker"),
    ("a slow worker", "equal"): lambda: below("a slow worker", tasks=PAIRS),
    ("a slow worker", "no CPU for it"): lambda: below(
        "a slow worker", tables={"cpu": [row | {"node": "worker-2"} for row in CPU_USE]}
    ),
    ("slow first tasks", "attempts failed"): lambda: below(
        "slow first tasks",
        tasks=[row | {"status": "error" if row["key"].endswith("-0") else "OK"} for row in FIRST_SLOW],
    ),
    ("slow first tasks", "sizes"): lambda: below("slow first tasks", tasks=SHRINKING),
    ("a lock of the process", "end together"): lambda: below("a lock of the process", tasks=TOGETHER),
    ("too few CPUs", "a CPU for each thread"): lambda: below("too few CPUs", threads={"worker-1": 2}),
    ("too few CPUs", "unknown"): lambda: below("CPUs that something used"),
    ("CPUs that something used", "known"): lambda: below("too few CPUs"),
    ("workers that died", "it had no work"): lambda: below(
        "workers that died", facts=Facts(failures=Failures(deaths=[Death(4.0, "worker-2", 0.0, 0.0, 0, 0)]))
    ),
    ("too few CPUs", "others"): lambda: below("CPUs that other programs use"),
    ("too few CPUs", "libraries"): lambda: below("threads of libraries"),
    ("CPUs that other programs use", "none"): lambda: below(
        "CPUs that other programs use", tables=machine_use(19.0, 20.0)
    ),
    ("threads of libraries", "one thread"): lambda: below("too few CPUs"),
    ("interpreter", "no CPU for it"): lambda: with_cpu_wait("interpreter"),
    ("threads of libraries", "the event loop used it"): lambda: below(
        "threads of libraries",
        busy={"worker-1": [(0.0, 10.0)]},
        tables={"cpu": [row | {"waiting_s": 0.0} for row in CPU_USE]},
    ),
    ("interpreter", "one thread"): lambda: below("interpreter", threads=TWO),
    ("garbage collection", "scheduler"): lambda: below("garbage collection of the scheduler"),
    ("garbage collection of the scheduler", "few tasks"): lambda: below(
        "garbage collection of the scheduler", tasks=equal_tasks(60, 0.1)
    ),
    ("garbage collection of the scheduler", "worker"): lambda: below("garbage collection"),
    ("tasks that block the event loop", "short"): lambda: below(
        "tasks that block the event loop", busy={"worker-1": [(n / 10, n / 10 + 0.02) for n in range(90)]}
    ),
    ("imports in the event loop", "__sizeof__"): lambda: below("slow __sizeof__"),
    ("slow __sizeof__", "an import"): lambda: below("imports in the event loop"),
    ("blocked event loops", "an import"): lambda: below("imports in the event loop"),
    ("a lock of the process", "seen elsewhere"): lambda: below(
        "a lock of the process", tasks=TOGETHER, tables={"stacks": stacks("", "waiting", key="write-1")}
    ),
    ("blocked event loops", "a task"): lambda: below("tasks that block the event loop"),
    ("blocked event loops", "spilling"): lambda: below("blocked event loops", facts=Facts(spilled_bytes=1e9)),
    ("spilling", "nothing spilled"): lambda: below("spilling", facts=Facts()),
    ("queuing is off", "on"): lambda: below(
        "queuing is off", facts=Facts(settings={"scheduler.worker-saturation": "1.1"})
    ),
    ("paused workers", "unmanaged"): lambda: below("unmanaged memory"),
    ("unmanaged memory", "managed"): lambda: below("paused workers"),
    ("results through the scheduler", "slow link"): lambda: below("results over a slow link"),
    ("results through the scheduler", "unpickling"): lambda: below("unpickling at the client"),
    ("results through the scheduler", "few bytes"): lambda: below("results through the scheduler", tasks=()),
    ("results over a slow link", "large"): lambda: below("results through the scheduler"),
    ("unpickling at the client", "bytes"): lambda: below("results over a slow link"),
    ("scatter", "many"): lambda: below("many scattered objects"),
    ("many scattered objects", "few"): lambda: below("scatter"),
    ("avoidable transfers", "half on each"): lambda: below(
        "avoidable transfers", tasks=[*equal_tasks(1, 0.1), *HALF_ON_EACH]
    ),
    ("avoidable transfers", "one piece"): lambda: below(
        "avoidable transfers", tasks=[*equal_tasks(1, 0.1), *NEEDS]
    ),
    ("avoidable transfers", "busy holder"): lambda: below("avoidable transfers", tasks=BUSY_HOLDER),
    ("avoidable transfers", "converting"): lambda: below("avoidable transfers", cause=SERIALISE),
    ("slow serialising", "fast"): lambda: below("slow serialising", fetches=SLOW_FETCH),
    ("slow link", "fast"): lambda: below(
        "slow link", fetches=[fetch("worker-2", "worker-1", 1.0, 1.1, ["add-0"])]
    ),
    ("wrong network interface", "right"): lambda: below("wrong network interface", facts=Facts()),
}


def test_every_rule_has_a_case_in_which_it_is_silent() -> None:
    assert {title for title, _ in OTHERWISE} == set(EXAMPLES)


@pytest.mark.parametrize("case", OTHERWISE, ids=": ".join)
def test_a_rule_needs_its_own_evidence(case: tuple[str, str]) -> None:
    title, _ = case
    assert title not in titles(OTHERWISE[case]())


def test_a_place_is_named_only_if_nearly_all_is_there() -> None:
    case = EXAMPLES["CPUs that something used"].measurements()
    blamed = {(CPU, "worker-1"): 1.6, (CPU, "worker-2"): 1.4}
    text = str(advise(replace(case, summary=replace(case.summary, bottlenecks=blamed)))[0])
    assert text.startswith("Threads of several workers could run but waited 3.0 s")


def test_a_scatter_over_a_slow_link_states_its_rate() -> None:
    calls = {"calls": [{"kind": "scatter", "start_s": 1.0, "stop_s": 4.0}]}
    case = replace(EXAMPLES["scatter"], tables=calls, facts=Facts(scattered=3, scattered_bytes=6e6))
    assert "Scattering 6 MB took 3.0 s of 10.0 s, at 16 Mbit/s" in str(advise(case.measurements())[0])


@pytest.mark.parametrize("received", [2.1, 0.11])
def test_a_slow_link_shows_in_graphs(received: float) -> None:
    case = below("slow link", fetches=[], graphs=[graph(5e6, received=received)])
    assert ("slow link" in titles(case)) == (received > 2)


def with_threads_of_a_moment(tasks_cpu_s: float, loop_cpu_s: float | None = 0.5) -> Measurements:
    """A worker that used 10 s of CPU, of which its tasks and its event loop had some."""
    uses = [
        {"node": "worker-1", "time_s": t, "cpu_s": t, "waiting_s": t / 100, "loop_waiting_s": 0.0}
        | ({} if loop_cpu_s is None else {"loop_cpu_s": loop_cpu_s * t / 10})
        for t in (0.0, 10.0)
    ]
    metered = {"thread-cpu": tasks_cpu_s, "thread-noncpu": 9.0 - tasks_cpu_s}
    kind = equal_tasks(1, 1.0)[0]["key"].partition("-")[0]
    metrics = [
        {"node": "worker-1", "metric": f"execute/span/{kind}/{name}/seconds", "value": value}
        for name, value in metered.items()
    ]
    return below("threads of libraries", tables={"cpu": uses, "metrics": metrics})


def test_threads_that_live_for_a_moment_show_in_the_cpu_time_of_their_process() -> None:
    case = with_threads_of_a_moment(tasks_cpu_s=2.0)
    said = next(piece for piece in advise(case) if piece.rule.title == "threads of libraries")
    assert (
        "threads beside its event loop and those of its tasks used 7.5 of the 10.0 s" in said.symptom.sentence
    )
    assert "too few CPUs" not in titles(case)
    assert "threads of libraries" not in titles(with_threads_of_a_moment(tasks_cpu_s=8.0))
    assert "threads of libraries" not in titles(with_threads_of_a_moment(2.0, loop_cpu_s=None))


def test_a_slow_sizeof_counts_twice() -> None:
    """In the event loop, which most samples show, and in the tasks' threads; or there alone."""
    case = below("slow __sizeof__")
    alone = next(piece for piece in advise(case) if piece.rule.title == "slow __sizeof__")
    path = {**case.summary.path, (MEASURE, "worker-1"): 1.5}
    both = replace(case, summary=replace(case.summary, path=path))
    twice = next(piece for piece in advise(both) if piece.rule.title == "slow __sizeof__")
    assert twice.seconds == pytest.approx(alone.seconds + 1.5)
    assert twice.symptom.sentence == f"{alone.symptom.sentence}, and 1.5 s for the same in tasks"
    in_tasks = below("slow __sizeof__", tables={}, cause=MEASURE)
    said = next(piece for piece in advise(in_tasks) if piece.rule.title == "slow __sizeof__")
    assert "Tasks asked their results for their sizes, which took 3.0 s" in said.symptom.sentence


@pytest.mark.parametrize(("activity", "seconds"), [("spill", 3.0), ("import", 2.0)])
def test_loops_that_are_blocked_by_spilling_count_for_its_advice(activity: str, seconds: float) -> None:
    case = below("spilling")
    path = {(DISK, "worker-1"): 2.0, (LAG, "worker-1"): 1.0}
    case = replace(case, summary=replace(case.summary, breakdown=path, path=path, lag_activity=activity))
    spilling = next(piece for piece in advise(case) if piece.rule.title == "spilling")
    assert spilling.seconds == pytest.approx(seconds)


def test_small_graphs_that_share_the_link_with_large_ones_count() -> None:
    """Of 4 MB within 2 s, half are in graphs that alone would have no rate; a later one is on its own."""
    graphs = [graph(size, received=2.1) for size in (2e6, 5e5, 5e5, 5e5, 5e5)]
    case = below("slow link", fetches=[], graphs=[*graphs, graph(5e5, received=9.0) | {"sent_s": 5.0}])
    slow = next(piece for piece in advise(case) if piece.rule.title == "slow link")
    assert "graphs moved at 16 Mbit/s" in slow.symptom.sentence


@pytest.mark.parametrize(("delay", "count", "slow"), [(0.02, 20, True), (0.001, 20, False), (0.02, 5, False)])
def test_a_slow_link_shows_in_the_fastest_of_many_messages(delay: float, count: int, slow: bool) -> None:
    rows = [
        task(f"x-{n}", "worker-1", 1, n / 10, n / 10 + 0.1, sent=n - delay, arrived=n) for n in range(count)
    ]
    assert ("slow link" in titles(below("slow link", fetches=[], tasks=rows))) == slow


def test_nothing_is_said_of_a_run_that_computes() -> None:
    repeat = make_repeat(equal_tasks(20, 0.45), threads=TWO)
    summary = Summary(10.0, 2, 1, breakdown={(COMPUTE, "worker-1"): 10.0}, path={(COMPUTE, "worker-1"): 10.0})
    assert titles(Measurements(repeat, summary, Facts())) == []


def test_at_most_three_are_given_and_the_greatest_first() -> None:
    path = {
        (BUILD, "client"): 2.0,
        (SCATTER, "client"): 1.5,
        (DISK, "worker-1"): 1.2,
        (HOLDING, "worker-1"): 3.0,
    }
    summary = Summary(10.0, 2, 1, breakdown=path, path=path, bottlenecks={(CPU, "worker-1"): 2.3})
    repeat = make_repeat(threads=TWO, graphs=[graph(64e6)])
    case = Measurements(repeat, summary, Facts(primitives=[LOCK_USE]))
    pieces = advise(case)
    assert len(pieces) == MOST_LINES
    assert [piece.seconds for piece in pieces] == [3.0, 2.3, 2.0]


def test_a_run_without_tasks_gets_no_advice() -> None:
    assert titles(Measurements(make_repeat(threads=TWO), Summary(10.0, 2, 1), Facts())) == []


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (pages.LARGER_TASKS, "Dask's documentation: use larger tasks"),
        (pages.LOCALITY, "Dask's documentation: locality"),
        (pages.RECHUNK, "Dask's documentation: dask.array.rechunk"),
        (pages.GARBAGE, "Python's documentation: gc"),
    ],
)
def test_link_names_its_page(page: str, name: str) -> None:
    assert pages.page_name(page) == name
