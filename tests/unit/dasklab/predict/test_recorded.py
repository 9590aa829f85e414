"""What a trial's records say its work costs: numbers counted by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from dasklab.breakdown.run import Run
from dasklab.predict import recorded

from tests.unit.dasklab.breakdown.timelines import fetch, make_run, task

RUN = "execute/span/{}/seconds"


def frames() -> dict[str, pd.DataFrame]:
    """Run 0 is a warm-up; in run 1 two tasks, one of which needs what was there before."""
    tasks = [
        (0, "('add-0', 1)", 1.0, 9.0, 5),
        (1, "('add-1', 1)", 20.0, 20.5, 800),
        (1, "('add-1', 2)", 21.0, 22.5, 900),
        (1, "('lost-1', 2)", None, None, 900),
    ]
    metrics = [
        (1, "worker-1", RUN.format("add/thread-cpu"), 0.5),
        (1, "worker-2", RUN.format("add/thread-noncpu"), 1.5),
        (0, "worker-1", RUN.format("add/thread-cpu"), 77.0),
        (1, "scheduler", RUN.format("add/thread-cpu"), 0.5),
        (1, "worker-1", recorded.CPU, 2.0),
        (1, "worker-2", recorded.WAITED, 3.0),
        (1, "scheduler", recorded.WAITED, 50.0),
    ]
    return {
        "runs": pd.DataFrame({"run": [0, 1], "warmup": [True, False]}),
        "tasks": pd.DataFrame(tasks, columns=["run", "key", "start_s", "stop_s", "nbytes"]),
        "metrics": pd.DataFrame(metrics, columns=["run", "node", "metric", "value"]),
        "needs": pd.DataFrame(
            {"run": [1, 1, 1], "key": "a", "needed": ["('add-1', 1)", "('source-0', 3)", "('source-0', 3)"]}
        ).assign(nbytes=[800, 1234, 1234]),
    }


def test_tasks_have_their_times_sizes_and_share_of_a_core() -> None:
    found = recorded.tasks(frames())
    assert found["add"].seen == ((0.5, 800), (1.5, 900))
    assert found["add"].cpu_share == pytest.approx(0.25)
    assert found["source"].seen == ((recorded.PREPARED_S, 1234),)
    assert list(found) == ["add", "source"]


def test_workers_starve_by_what_they_waited_for_a_core() -> None:
    assert recorded.starved(frames()) == pytest.approx(1.5)


def test_of_what_an_emulated_machine_counts_as_work_its_node_gave_a_share() -> None:
    found = frames()  # of 2 s that were counted 1 was work, 1 + 3 waiting
    assert recorded.tasks(found, 0.5)["add"].cpu_share == pytest.approx(0.125)
    assert recorded.starved(found, 0.5) == pytest.approx(4.0)
    calm, crowded = (recorded.loop_cpu(found, [run(1, 10**8, 2)], given) for given in (1.0, 0.5))
    assert crowded["worker"] == pytest.approx(calm["worker"] / 2)
    rows = [(1, "worker-1", recorded.CPU, 21.0)]  # three wanted one for 7 s, and had one and a half
    busy = found | {"metrics": pd.DataFrame(rows, columns=["run", "node", "metric", "value"])}
    had = recorded.cores_had(busy, [run(1, 10, 2)], 2, 0.5)
    assert had == pytest.approx(2 * 1.5 / (2 - 5 * math.exp(-3)), rel=1e-3)


def test_what_passes_between_a_loop_and_a_thread_is_the_mean_of_the_timed_runs_tasks() -> None:
    found, nan = frames(), math.nan
    unknown = found["tasks"].assign(executing_s=nan, done_s=nan)
    assert recorded.handoff_s(found | {"tasks": unknown}) == 0
    handed = found["tasks"].assign(executing_s=[0.0, 19.9, 20.5, nan], done_s=[99.0, 20.6, 22.7, nan])
    assert recorded.handoff_s(found | {"tasks": handed}) == pytest.approx((0.1 + 0.1 + 0.5 + 0.2) / 2)


def test_of_what_kept_loops_busy_a_core_computed_what_tasks_did_not() -> None:
    found = frames()
    row = pd.DataFrame([{"run": 1, "node": "scheduler", "metric": recorded.CPU, "value": 0.1}])
    found["metrics"] = pd.concat([found["metrics"], row], ignore_index=True)
    # workers: 2 s of CPU, 0.5 of it tasks'; loops were busy for 0.1 x 2 + 2 x 0.1 s; the scheduler's for 0.5
    assert recorded.loop_cpu(found, [run(1, 10**8, 2)]) == pytest.approx(
        {"scheduler": 0.1 / 0.5, "worker": 1.5 / 0.4}
    )
    found["metrics"] = found["metrics"][found["metrics"].metric != recorded.CPU]
    assert recorded.loop_cpu(found, [run(1, 100_000, 2)]) == {}


def run(number: int, moved: int, tasks: int, byte_s: float = 1e-9) -> Run:
    """Ten seconds; worker-1 is busy 0.1 s for each of its tasks and ``byte_s`` for each byte it fetched."""
    need = [("b", moved, ())]
    busy_s = 0.1 * tasks + byte_s * moved
    return make_run(
        [
            task(f"a-{i}", "worker-1", 0, 2.0 + i, 2.5 + i, decided=1.0, handled=8.0, needs=need)
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


def test_operations_cost_what_kept_the_loops_busy_bytes_aside() -> None:
    runs = [run(1, 10**8, 2), run(2, 4 * 10**8, 3), run(3, 2 * 10**8, 5)]
    found = recorded.costs(runs, {"scheduler": 100.0, "worker": 50.0})
    assert found["scheduler"].op_s == pytest.approx(0.5 / 100)
    assert found["worker"].byte_s == pytest.approx(1e-9)
    # of both workers together, a run: 0.1 s for each of 10 tasks in three runs
    assert found["worker"].op_s == pytest.approx(1.0 / 3 / 50)


def test_no_byte_takes_longer_than_a_byte_can() -> None:
    runs = [run(1, 100_000, 2, 1e-6), run(2, 400_000, 3, 1e-6), run(3, 200_000, 5, 1e-6)]
    found = recorded.costs(runs, {"scheduler": 100.0, "worker": 50.0})["worker"]
    assert found.byte_s == recorded.MOST_BYTE_S
    # what bytes did not take, operations did: 1 s for tasks and 2 x 0.7 s for bytes in three runs
    assert found.op_s == pytest.approx((2.4 - 2 * 700_000 * 1e-8) / 3 / 50)


@pytest.mark.parametrize(
    ("had", "waited", "cores"),
    [
        (14.0, 10_000.0, 2.0),  # both all the time
        (10.5, 10_000.0, 1.5),  # many wanted one all the time, and had three quarters of two
        (4.9, 9.0, 2.0),  # 1.99 wanted one on average: nothing is told
        (7.0, 14.0, 2 * 7.0 / 14 / (1 - 2.5 * math.exp(-3))),  # of 3 on average at times none and one
    ],
)
def test_cores_are_what_processes_had_when_they_wanted_all(had: float, waited: float, cores: float) -> None:
    """Of a run of 10 s the client alone computes for 3."""
    rows = [(1, "worker-1", recorded.CPU, had), (1, "scheduler", recorded.WAITED, waited)]
    found = frames() | {"metrics": pd.DataFrame(rows, columns=["run", "node", "metric", "value"])}
    assert recorded.cores_had(found, [run(1, 10, 2)], 2) == pytest.approx(cores, rel=1e-3)


def test_a_clients_ends_are_before_the_first_and_after_the_last_task() -> None:
    assert recorded.driver_s([run(1, 10, 2), run(2, 10, 2)]) == pytest.approx(1.0 + 2.0)


def shuffled() -> dict[str, pd.DataFrame]:
    """Two transfers that cut 3 kB between them, and a barrier in each of two runs."""
    tasks = [
        (1, "('shuffle-transfer-0', 1)", 1.0, 2.0, 28),
        (1, "('shuffle-transfer-0', 2)", 1.0, 2.0, 28),
        (1, "shuffle-barrier-e14ae8723767ba262d214", 2.0, 5.0, 28),
        (2, "shuffle-barrier-f14ae8723767ba262d214", 2.0, 2.5, 28),
    ]
    metrics = [
        (1, "worker-1", recorded.SHARDS, 1000.0),
        (1, "worker-2", recorded.SHARDS, 2000.0),
        (1, "worker-1", RUN.format("shuffle-transfer/p2p-shard-partition-cpu"), 1.5),
        (1, "worker-1", RUN.format("shuffle-transfer/thread-noncpu"), 0.5),
    ]
    return {
        "runs": pd.DataFrame({"run": [1, 2], "warmup": [False, False]}),
        "tasks": pd.DataFrame(tasks, columns=["run", "key", "start_s", "stop_s", "nbytes"]),
        "metrics": pd.DataFrame(metrics, columns=["run", "node", "metric", "value"]),
        "needs": pd.DataFrame(
            [(1, tasks[2][1], tasks[row][1], 28) for row in (0, 1)],
            columns=["run", "key", "needed", "nbytes"],
        ),
    }


def test_a_transfer_gives_away_its_share_of_all_shards_and_computes_while_it_cuts() -> None:
    assert recorded.shuffled_bytes(shuffled()) == pytest.approx(1500)
    assert recorded.shuffled_bytes(frames()) == 0
    assert recorded.tasks(shuffled())["shuffle-transfer"].cpu_share == pytest.approx(0.75)


def test_a_barrier_takes_as_long_as_the_one_that_waited_least() -> None:
    assert recorded.tasks(shuffled())["shuffle-barrier"].seen == ((0.5, 28),)


def test_workers_are_behind_by_what_they_hold_less_of_what_was_there_before() -> None:
    found = frames()
    held = [("('old-0', 1)", ["worker-2"]), ("('old-0', 2)", ["worker-2", "worker-1"]), ("('old-0', 2)", [])]
    rows = [(1, key, 8, holders) for key, holders in [*held, ("('add-1', 1)", ["worker-1"])]]
    found["needs"] = pd.DataFrame(rows, columns=["run", "needed", "nbytes", "holders"])
    assert recorded.behind(found, ["worker-1", "worker-2", "worker-3"]) == (2, 0, 2)
    found["needs"] = found["needs"][3:]
    assert recorded.behind(found, ["worker-1", "worker-2", "worker-3"]) == (0, 0, 0)
