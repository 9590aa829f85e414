"""Rules about how the client's program asks for work: the same again, or one piece at a time."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.model.arrays import NONE
from dasklab.terminal import counted

LEAST_GRAPHS = 5
FEW_TASKS = 2.0  # of a graph, in the mean
ONE_AT_A_TIME = 1.2  # tasks that ran at a time, while any did


def _same_again(case: Measurements) -> Symptom | None:
    """Name the kind of task whose repetitions took longest, and count the repetitions of other kinds."""
    repeat, rows = case.repeat, case.repeat.repeated
    if not len(rows):
        return None
    seconds = case.task_s[rows]
    of_kind = repeat.prefix[rows] == np.bincount(repeat.prefix[rows], seconds).argmax()
    key = repeat.tasks.key[rows[of_kind]]
    keys, others = len(np.unique(key)), len(rows) - len(key)
    kind, beside = repeat.prefixes[key[0]], f" and {others:,} of other tasks" if others else ""
    return Symptom(
        float(seconds.sum()) / case.concurrency,
        f"{kind} ran {len(key) + keys:,} times for {counted(keys, 'key')} although no result was lost;"
        f" {counted(len(key), 'repetition')}{beside} took {seconds.sum():.1f} thread-seconds",
        rows,
    )


def _one_at_a_time(case: Measurements) -> Symptom | None:
    """Look for a program that waits for each result before it asks for the next one."""
    repeat = case.repeat
    graphs = sum(graph.is_recorded for graph in repeat.graphs)
    waits, _ = repeat.calls.of_kind("sync")
    tasks, threads = len(repeat.tasks), case.threads
    if graphs < LEAST_GRAPHS or threads < 2 or not LEAST_GRAPHS <= tasks <= FEW_TASKS * graphs:
        return None
    has_waited = len(waits) >= graphs / 2
    chained = len(np.unique(repeat.needs.task[repeat.need_source != NONE]))
    if case.concurrency > ONE_AT_A_TIME or not has_waited or chained > tasks / 2:
        return None
    total_s = float(case.task_s.sum())
    return Symptom(
        total_s / case.concurrency - total_s / threads,
        f"{counted(graphs, 'computation')} came one after another: the program waited for each result before"
        f" it asked for the next, so one of {threads} threads worked at a time",
        np.arange(tasks),
    )


RULES = (
    AdviceRule(
        "the same computed again", "",
        "Keep what several computations share with persist(), or compute all of them in one dask.compute().",
        pages.REPEATED_COMPUTE, _same_again,
    ),
    AdviceRule(
        "one result at a time", f"{LEAST_GRAPHS} computations",
        "Submit all of them first, then wait: client.map and client.gather, as_completed, or one"
        " dask.compute().",
        pages.REPEATED_COMPUTE, _one_at_a_time,
    ),
)  # fmt: skip
