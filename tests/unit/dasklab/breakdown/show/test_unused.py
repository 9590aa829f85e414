"""Threads and memory that nobody used are said only where all that ran is recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dasklab.breakdown.answers.facts.facts import Facts
from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.answers.facts.memory import KindPeak, WorkerMemory, kind_peaks
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.prepare.deaths import Death
from dasklab.breakdown.show.memory import memory_sentences
from dasklab.breakdown.show.unused import unused_sentences

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

ONE_AT_A_TIME = [task(f"a-{n}", f"worker-{1 + n % 2}", 1, float(n), n + 1.0) for n in range(8)]
IDLE = "At most 1 of 4 threads ran tasks at the same time."


def repeat_of(*more: Row, unfinished: int = 0) -> Repeat:
    threads = {"worker-1": 2, "worker-2": 2}
    return make_repeat([*ONE_AT_A_TIME, *more], threads=threads, unfinished=[(0.5, 1), (9.0, unfinished)])


def memory(worker: str, megabytes: float, heartbeats: int = 20) -> WorkerMemory:
    rows = np.full(heartbeats, 1e6)
    time = np.linspace(0.0, 10.0, heartbeats)
    return WorkerMemory(worker, time, megabytes * rows, 10 * rows, 0 * rows, 1000 * rows)


@pytest.mark.parametrize(
    ("repeat", "failures", "sentences"),
    [
        (repeat_of(), Failures(), [IDLE]),
        (repeat_of(task("b", "worker-1", 2, 0.0, 9.0), task("c", "worker-2", 2, 0.0, 9.0)), Failures(), []),
        (repeat_of(unfinished=1), Failures(), []),
        (make_repeat([task("a", "worker-1", 1, 1.0, 1.5)]), Failures(), []),
        (repeat_of(), Failures(deaths=[Death(1.0, "worker-3", 0, 0, None, None)]), []),
    ],
    ids=[
        "one at a time",
        "busy",
        "one still runs",
        "tasks took next to nothing",
        "records of a worker are missing",
    ],
)
def test_threads_that_never_ran_a_task(repeat: Repeat, failures: Failures, sentences: list[str]) -> None:
    assert [*map(str, unused_sentences(repeat, Facts(failures=failures)))] == sentences


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([memory("worker-1", 150), memory("worker-2", 90)],
         "At no heartbeat did a worker use more than 15 % of its memory limit:"
         " 150 of 1,000 MB, on worker-1."),
        ([memory("worker-1", 150), memory("worker-2", 400)], ""),
        ([memory("worker-1", 150), memory("worker-2", 90, heartbeats=3)], ""),
        ([memory("worker-1", 150)], ""),
    ],
    ids=["little", "much", "few heartbeats", "one worker unknown"],
)  # fmt: skip
def test_memory_that_was_never_used(rows: list[WorkerMemory], sentence: str) -> None:
    found = [str(each) for each in unused_sentences(repeat_of(), Facts(memory=rows))]
    assert found == [IDLE, *filter(None, [sentence])]


def test_peak_of_each_kind_is_that_of_the_heartbeats_while_it_ran() -> None:
    tasks = [task("load-1", "worker-1", 1, 0.0, 4.0), task("sum-1", "worker-1", 1, 4.5, 9.0)]
    repeat = make_repeat([*tasks, task("short-1", "worker-1", 1, 9.1, 9.2)])
    own = memory("worker-1", 100, heartbeats=11)  # one each second
    own = replace(own, process=np.arange(11.0) * 1e6)
    assert kind_peaks(repeat, [own]) == [
        KindPeak("sum", "worker-1", 9e6, 10e6, 1e9, 9.0, 5),
        KindPeak("load", "worker-1", 4e6, 10e6, 1e9, 4.0, 5),
    ]


def test_less_than_a_megabyte_is_not_called_spilled() -> None:
    own = memory("worker-1", 100)
    for spilled, count in ((4e5, 0), (4e7, 1)):
        rows = [replace(own, spilled=spilled + 0 * own.spilled)]
        assert len([*memory_sentences(repeat_of(), rows, {})]) == count
