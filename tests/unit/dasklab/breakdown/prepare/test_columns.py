"""Joins, running extremes and busy intervals against the loops that they replace."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dasklab.breakdown.answers.bottlenecks.slow_workers import _kth_other
from dasklab.breakdown.model.arrays import NONE, expand, last_before, least_before, pairs
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.prepare.columns import build_repeat
from dasklab.records.schema import TABLES
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import make_repeat, task

SEEDS = st.integers(0, 10**6)


@given(SEEDS)
def test_the_last_entry_before_a_bound(seed: int) -> None:
    chance = np.random.default_rng(seed)
    owner, time = chance.integers(0, 4, 20), 1.7e9 + chance.integers(0, 50, 20) / 10
    wanted, bound = chance.integers(0, 5, 15), 1.7e9 + chance.integers(-5, 60, 15) / 10
    time[3], bound[4] = np.nan, np.nan
    for w, b, match in zip(wanted, bound, last_before(owner, time, wanted, bound), strict=True):
        times = [t for o, t in zip(owner, time, strict=True) if o == w and not np.isnan(t) and not t > b]
        assert match == NONE if not times else (owner[match], time[match]) == (w, max(times))


@given(SEEDS)
def test_all_pairs_of_an_owner(seed: int) -> None:
    chance = np.random.default_rng(seed)
    owner, wanted = chance.integers(0, 5, 12), chance.integers(0, 6, 9)
    expected = {(q, e) for q in range(9) for e in range(12) if wanted[q] == owner[e]}
    question, entry = pairs(owner, wanted)
    assert (
        len(question) == len(expected)
        and set(zip(question.tolist(), entry.tolist(), strict=True)) == expected
    )


def test_members_of_ranges() -> None:
    row, member = expand(np.array([2, 5, 5]), np.array([4, 5, 6]))
    assert list(zip(row.tolist(), member.tolist(), strict=True)) == [(0, 2), (0, 3), (2, 5)]


def test_the_least_value_before_in_each_group() -> None:
    least = least_before(
        np.array([0, 0, 0, 1, 1]), np.array([5.0, 3, 4, 1, 2]), np.array([9.0, 9, 9, 0.5, 7])
    )
    assert least.tolist() == [9.0, 5.0, 3.0, 0.5, 1.0]


@given(SEEDS)
def test_busy_intervals_are_looked_up_as_a_loop_would(seed: int) -> None:
    chance = np.random.default_rng(seed)
    node, start = chance.integers(0, 3, 15), chance.uniform(0, 20, 15)
    stop = start + chance.uniform(0, 3, 15)
    busy = IntervalSets(node, start, stop)
    at, where = chance.uniform(-5, 30, 40), chance.integers(0, 4, 40)
    later = at + chance.uniform(0, 10, 40)
    grid = np.linspace(0, 1, 20001)
    for n, a, b, begin, end, inside in zip(
        where, at, later, *busy.around(where, at), busy.within(where, at, later), strict=True
    ):
        spans = [(s, e) for m, s, e in zip(node, start, stop, strict=True) if m == n]
        covers = any(s < a <= e for s, e in spans)
        assert (begin < end) == covers and (begin <= a <= end)
        moments = a + (b - a) * grid
        covered = np.any([(s <= moments) & (moments <= e) for s, e in spans] or [grid < 0], axis=0)
        assert inside == pytest.approx((b - a) * covered.mean(), abs=(b - a) * 0.01)


@given(st.sets(st.integers(0, 20)), st.integers(0, 20))
def test_the_kth_element_of_the_others(positions: set[int], k: int) -> None:
    others = [position for position in range(60) if position not in positions]
    assert _kth_other(np.array(sorted(positions), np.int64), k) == others[k]


def test_a_worker_that_left_has_the_threads_that_it_used() -> None:
    tables = {name: pd.DataFrame([], columns=list(columns)) for name, columns in TABLES.items()}
    tables["repeats"] = pd.DataFrame([{"repeat": 0, "warmup": False, "start_s": 0.0, "stop_s": 9.0}])
    rows = [("x", "a", 1, 1.0, 2.0), ("y", "a", 2, 1.0, 2.0), ("z", "b", 1, 1.0, 2.0)]
    tables["tasks"] = pd.DataFrame(rows, columns=["key", "worker", "thread", "start_s", "stop_s"]).reindex(
        columns=list(TABLES["tasks"])
    )
    tables["workers"] = pd.DataFrame([{"worker": "b", "threads": 4}], columns=list(TABLES["workers"]))
    assert build_repeat(tables).threads == {"b": 4, "a": 2}


@pytest.mark.parametrize(
    ("metrics", "disk_s"),
    [
        ({}, 0.5),  # an earlier version of Dask counts no bytes
        ({"execute/load/memory-read/bytes": 8.0}, 0.0),  # storing a result took long, and spilled nothing
        ({"execute/load/disk-write/bytes": 8.0}, 0.5),
        ({"p2p/load/disk-write/bytes": 8.0}, 0.0),  # a shuffle writes files of its own
    ],
)
def test_disk_is_named_only_where_bytes_were_spilled(metrics: dict[str, float], disk_s: float) -> None:
    rows = [{"node": "worker-1", "metric": name, "value": value} for name, value in metrics.items()]
    repeat = make_repeat([task("load", "worker-1", 1, 1.0, 2.0, disk=0.5)], tables={"metrics": rows})
    assert repeat.tasks.disk_s.tolist() == [disk_s]


def test_a_task_that_still_runs_ends_with_the_repeat() -> None:
    row = task("x", "worker-1", 11, 2.0, np.nan) | {"status": "unfinished"}
    (stop,) = make_repeat([row], stop=4.0).tasks.stop
    assert stop == 4.0


def test_a_lost_attempt_ends_when_the_scheduler_noticed_it() -> None:
    """Its worker's clock is 0.2 s behind by Dask's estimate, which was not used to take its times."""
    row = task("x", "worker-1", 0, 1.8, 2.8, handled=3.0) | {"status": "lost"}
    tasks = make_repeat([row], stop=4.0).tasks
    assert (tasks.start[0], tasks.stop[0]) == (pytest.approx(2.0), 3.0)


@pytest.mark.parametrize(
    ("second", "number"),
    [((2.0, 3.0), 1), ((0.9999, 3.0), 1), ((0.5, 3.0), 2)],
    ids=["after the first thread", "after it, by stamps that are less exact", "beside it"],
)
def test_a_worker_that_was_started_again_has_no_more_threads(
    second: tuple[float, float], number: int
) -> None:
    rows = [task("x-1", "worker-1", 11, 0.0, 1.0), task("x-2", "worker-1", 22, *second)]
    assert len(make_repeat(rows, stop=4.0, threads={"worker-1": 1}).thread_rows[1]) == number
