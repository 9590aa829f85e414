"""Rules about options of collections, read from the names of tasks and from the user's lines."""

from __future__ import annotations

import re

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.imbalance import LONG_S, describe, long_tasks
from dasklab.breakdown.answers.advice.kinds import (
    OVERLAP,
    REDUCTION,
    TASK_RECHUNK,
    TASK_SHUFFLE,
    kind_of,
    share_of,
)
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom
from dasklab.breakdown.answers.advice.tasks import LEAST_SMALL, SMALL_TASK_S, small_tasks
from dasklab.breakdown.model.causes import SCHEDULING, USER_CODE, WORKER_LAG

MOST_OF_THEM, SOME_OF_THEM = 0.5, 0.1  # of the tasks
SMALL = f"{LEAST_SMALL} tasks of less than {1e3 * SMALL_TASK_S:.0f} ms"
OPENS_FILES = re.compile(r"\bopen_mfdataset\(")


def _reduction(case: Measurements) -> Symptom | None:
    return _long(case, REDUCTION)


def _rechunk(case: Measurements) -> Symptom | None:
    return _long(case, TASK_RECHUNK)


def _long(case: Measurements, pattern: re.Pattern[str]) -> Symptom | None:
    long = long_tasks(case)
    if long is None or not pattern.search(kind_of(case, int(long.rows[0]))):
        return None
    return describe(case, long)


def _task_shuffle(case: Measurements) -> Symptom | None:
    return small_tasks(case) if share_of(case, TASK_SHUFFLE) > MOST_OF_THEM else None


def _overlap(case: Measurements) -> Symptom | None:
    return small_tasks(case) if share_of(case, OVERLAP) > SOME_OF_THEM else None


def _files_one_by_one(case: Measurements) -> Symptom | None:
    """Look at the lines that the client ran while it kept the cluster waiting."""
    seconds = sum(
        seconds
        for (bottleneck, (_, _, text)), seconds in case.summary.client_lines.items()
        if bottleneck is USER_CODE and OPENS_FILES.search(text) and "parallel=True" not in text
    )
    if not seconds:
        return None
    return Symptom(seconds, f"open_mfdataset opened files one by one for {seconds:.1f} s {case.length}")


RULES = (
    AdviceRule(
        "reduction into one partition", f"{LONG_S} s with a third of the threads idle",
        "If its result is large (many groups), spread it: split_out= of the reduction.",
        pages.GROUPBY, _reduction,
    ),
    AdviceRule(
        "rechunking by tasks", f"{LONG_S} s with a third of the threads idle",
        "Use method='p2p', or chunks that are nearer to the old ones.", pages.RECHUNK, _rechunk,
    ),
    AdviceRule(
        "shuffle by tasks", SMALL, "Use shuffle_method='p2p', or fewer partitions.",
        pages.SHUFFLE, _task_shuffle, (SCHEDULING, WORKER_LAG),
    ),
    AdviceRule(
        "overlapping chunks", SMALL,
        "Use larger chunks: each one exchanges its borders with its neighbours.",
        pages.CHUNK_SIZES, _overlap, (SCHEDULING, WORKER_LAG),
    ),
    AdviceRule(
        "files opened one by one", "", "Use open_mfdataset(..., parallel=True): workers open the files.",
        pages.XARRAY_FILES, _files_one_by_one, (USER_CODE,),
    ),
)  # fmt: skip
