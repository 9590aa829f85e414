"""From Dask's records of a trial to costs: numbers counted by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from dasklab.breakdown.model.repeat import Repeat
from dasklab.predict import recorded
from dasklab.records.recorder.process import CPU, WAITING_FOR_CPU

from tests.unit.dasklab.breakdown.timelines import fetch, make_repeat, task

SPAN = "execute/span/{}/seconds"
METRICS = ["repeat", "node", "metric", "value"]


def frames() -> dict[str, pd.DataFrame]:
    """Run 0 is a warm-up. Run 1 has two tasks, one of which needs a result from before the repeats."""
    tasks = [
        (0, "('add-0', 1)", 1.0, 9.0, 5),
        (1, "('add-1', 1)", 20.0, 20.5, 800),
        (1, "('add-1', 2)", 21.0, 22.5, 900),
        (1, "('lost-1', 2)", None, None, 900),
    ]
    metrics = [
        (1, "worker-1", SPAN.format("add/thread-cpu"), 0.5),
        (1, "worker-2", SPAN.format("add/thread-noncpu"), 1.5),
        (0, "worker-1", SPAN.format("add/thread-cpu"), 77.0),
        (1, "scheduler", SPAN.format("add/thread-cpu"), 0.5),
        (1, "worker-1", CPU, 2.0),
        (1, "worker-2", WAITING_FOR_CPU, 3.0),
        (1, "scheduler", WAITING_FOR_CPU, 50.0),
    ]
    needed = ["('add-1', 1)", "('source-0', 3)", "('source-0', 3)"]
    return {
        "repeats": pd.DataFrame({"repeat": [0, 1], "warmup": [True, False]}),
        "tasks": pd.DataFrame(tasks, columns=["repeat", "key", "start_s", "stop_s", "nbytes"]),
        "metrics": pd.DataFrame(metrics, columns=METRICS),
        "needs": pd.DataFrame({"repeat": 1, "key": "a", "needed": needed, "nbytes": [800, 1234, 1234]}),
    }


def with_metrics(*rows: tuple[int, str, str, float]) -> dict[str, pd.DataFrame]:
    return frames() | {"metrics": pd.DataFrame(list(rows), columns=METRICS)}


def repeat(number: int, moved: int, tasks: int, byte_s: float = 1e-9) -> Repeat:
    """Ten seconds; worker-1 is busy 0.1 s for each task and ``byte_s`` for each byte that it fetched."""
    needs = [("b", moved, ())]
    busy_s = 0.1 * tasks + byte_s * moved
    return make_repeat(
        [
            task(f"a-{i}", "worker-1", 0, 2.0 + i, 2.5 + i, decided=1.0, handled=8.0, needs=needs)
            for i in range(tasks)
        ],
        [
            fetch("worker-1", "worker-2", 2.0, 3.0, ("b",)),
            fetch("worker-1", "worker-2", 3, 4, ("b",), status="busy"),
        ],
        number=number,
        busy={
            "worker-1": [(1.0, 1.0 + busy_s), (11.0, 20.0)],
            "worker-2": [(1.0, 1.0 + byte_s * moved)],
            "scheduler": [(-5.0, 0.3), (4.0, 4.2)],
        },
    )


# --- tasks -------------------------------------------------------------------------------------------------


def test_task_samples_have_durations_sizes_and_the_share_of_a_core() -> None:
    by_prefix = recorded.task_samples(frames())
    assert by_prefix["add"].samples == ((0.5, 800), (1.5, 900))
    assert by_prefix["add"].cpu_share == pytest.approx(0.25)
    assert by_prefix["source"].samples == ((recorded.PREPARED_S, 1234),)
    assert list(by_prefix) == ["add", "source"]


def test_handoff_is_the_mean_over_the_tasks_of_timed_runs() -> None:
    tables, nan = frames(), math.nan
    unknown = tables["tasks"].assign(executing_s=nan, done_s=nan)
    assert recorded.handoff_s(tables | {"tasks": unknown}) == 0
    known = tables["tasks"].assign(executing_s=[0.0, 19.9, 20.5, nan], done_s=[99.0, 20.6, 22.7, nan])
    assert recorded.handoff_s(tables | {"tasks": known}) == pytest.approx((0.1 + 0.1 + 0.5 + 0.2) / 2)


def test_workers_are_behind_by_the_prepared_results_that_they_lack() -> None:
    tables = frames()
    needs = [
        (1, "('old-0', 1)", 8, "worker-2"),
        (1, "('old-0', 2)", 8, "worker-2\x1fworker-1"),
        (1, "('old-0', 2)", 8, ""),
        (1, "('add-1', 1)", 8, "worker-1"),  # computed in a repeat
    ]
    tables["needs"] = pd.DataFrame(needs, columns=["repeat", "needed", "nbytes", "holders"])
    assert recorded.behind(tables, ["worker-1", "worker-2", "worker-3"]) == (2, 0, 2)
    tables["needs"] = tables["needs"][3:]
    assert recorded.behind(tables, ["worker-1", "worker-2", "worker-3"]) == (0, 0, 0)


# --- cores -------------------------------------------------------------------------------------------------


def test_starved_is_the_time_that_workers_waited_per_second_on_a_core() -> None:
    assert recorded.starved(frames()) == pytest.approx(1.5)


def test_granted_share_reduces_the_cpu_time_of_emulated_machines() -> None:
    # 2 s were counted: with half of it granted, 1 s was work and 1 + 3 s waiting
    assert recorded.task_samples(frames(), 0.5)["add"].cpu_share == pytest.approx(0.125)
    assert recorded.starved(frames(), 0.5) == pytest.approx(4.0)
    full, half = (recorded.loop_cpu(frames(), [repeat(1, 10**8, 2)], granted) for granted in (1.0, 0.5))
    assert half["worker"] == pytest.approx(full["worker"] / 2)
    # three processes wanted a core for 7 s, and had one and a half
    busy = with_metrics((1, "worker-1", CPU, 21.0))
    cores = recorded.available_cores(busy, [repeat(1, 10, 2)], 2, 0.5)
    assert cores == pytest.approx(2 * 1.5 / (2 - 5 * math.exp(-3)), rel=1e-3)


def test_loop_cpu_is_the_processes_cpu_time_without_that_of_tasks() -> None:
    tables = frames()
    row = pd.DataFrame([(1, "scheduler", CPU, 0.1)], columns=METRICS)
    tables["metrics"] = pd.concat([tables["metrics"], row], ignore_index=True)
    # Workers had 2 s of CPU, 0.5 s of it for tasks, and their loops were busy for 0.2 + 0.2 s.
    # The scheduler's loop was busy for 0.5 s.
    assert recorded.loop_cpu(tables, [repeat(1, 10**8, 2)]) == pytest.approx(
        {"scheduler": 0.1 / 0.5, "worker": 1.5 / 0.4}
    )
    tables["metrics"] = tables["metrics"][tables["metrics"].metric != CPU]
    assert recorded.loop_cpu(tables, [repeat(1, 100_000, 2)]) == {}


@pytest.mark.parametrize(
    ("used_s", "waited_s", "cores"),
    [
        (14.0, 10_000.0, 2.0),  # both cores all the time
        (10.5, 10_000.0, 1.5),  # many processes wanted a core all the time, and had 75 % of two
        (4.9, 9.0, 2.0),  # 1.99 processes wanted one on average: the records cannot tell
        (7.0, 14.0, 2 * 7.0 / 14 / (1 - 2.5 * math.exp(-3))),  # 3 on average, at times 0 or 1
    ],
)
def test_available_cores_are_those_used_while_all_were_wanted(
    used_s: float, waited_s: float, cores: float
) -> None:
    # In 3 s of the repeat's 10 s the client computes alone
    tables = with_metrics((1, "worker-1", CPU, used_s), (1, "scheduler", WAITING_FOR_CPU, waited_s))
    assert recorded.available_cores(tables, [repeat(1, 10, 2)], 2) == pytest.approx(cores, rel=1e-3)


# --- event loops and the client ----------------------------------------------------------------------------


def test_operations_cost_the_busy_time_of_loops_without_that_of_bytes() -> None:
    repeats = [repeat(1, 10**8, 2), repeat(2, 4 * 10**8, 3), repeat(3, 2 * 10**8, 5)]
    costs = recorded.costs(repeats, {"scheduler": 100.0, "worker": 50.0})
    assert costs["scheduler"].op_s == pytest.approx(0.5 / 100)
    assert costs["worker"].byte_s == pytest.approx(1e-9)
    # Both workers together, per repeat: 0.1 s for each of 10 tasks in three repeats
    assert costs["worker"].op_s == pytest.approx(1.0 / 3 / 50)


def test_cost_of_a_byte_is_bounded() -> None:
    repeats = [repeat(1, 100_000, 2, 1e-6), repeat(2, 400_000, 3, 1e-6), repeat(3, 200_000, 5, 1e-6)]
    worker = recorded.costs(repeats, {"scheduler": 100.0, "worker": 50.0})["worker"]
    assert worker.byte_s == recorded.MAX_BYTE_S
    # The rest is the operations': 1 s for tasks and 2 x 0.7 s for bytes in three repeats
    assert worker.op_s == pytest.approx((2.4 - 2 * 700_000 * 1e-8) / 3 / 50)


def test_driver_time_is_before_the_first_and_after_the_last_task() -> None:
    assert recorded.driver_s([repeat(1, 10, 2), repeat(2, 10, 2)]) == pytest.approx(1.0 + 2.0)


# --- peer-to-peer shuffles ---------------------------------------------------------------------------------


def shuffled() -> dict[str, pd.DataFrame]:
    """Two transfers that cut 3 kB together, and a barrier in each of two repeats."""
    tasks = [
        (1, "('shuffle-transfer-0', 1)", 1.0, 2.0, 28),
        (1, "('shuffle-transfer-0', 2)", 1.0, 2.0, 28),
        (1, "shuffle-barrier-e14ae8723767ba262d214", 2.0, 5.0, 28),
        (2, "shuffle-barrier-f14ae8723767ba262d214", 2.0, 2.5, 28),
    ]
    metrics = [
        (1, "worker-1", "p2p/span/foreground/shards/bytes", 1000.0),
        (1, "worker-2", "p2p/span/foreground/shards/bytes", 2000.0),
        (1, "scheduler", "p2p/foreground/shards/bytes", 700.0),  # what heartbeats had brought by then
        (1, "worker-1", SPAN.format("shuffle-transfer/p2p-shard-partition-cpu"), 1.5),
        (1, "worker-1", SPAN.format("shuffle-transfer/thread-noncpu"), 0.5),
    ]
    needs = [(1, tasks[2][1], tasks[row][1], 28) for row in (0, 1)]
    return {
        "repeats": pd.DataFrame({"repeat": [1, 2], "warmup": [False, False]}),
        "tasks": pd.DataFrame(tasks, columns=["repeat", "key", "start_s", "stop_s", "nbytes"]),
        "metrics": pd.DataFrame(metrics, columns=METRICS),
        "needs": pd.DataFrame(needs, columns=["repeat", "key", "needed", "nbytes"]),
    }


def test_transfer_gives_away_its_share_of_all_shards_and_computes_while_it_cuts() -> None:
    assert recorded.shuffled_bytes(shuffled()) == pytest.approx(1500)
    assert recorded.shuffled_bytes(frames()) == 0
    assert recorded.task_samples(shuffled())["shuffle-transfer"].cpu_share == pytest.approx(0.75)


def test_barrier_takes_as_long_as_the_one_that_waited_least() -> None:
    assert recorded.task_samples(shuffled())["shuffle-barrier"].samples == ((0.5, 28),)
