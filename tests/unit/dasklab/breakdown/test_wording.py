"""What an account says: the words, the tables, and clocks against a capture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from dasklab.breakdown import wording
from dasklab.breakdown.align import Delay, clocks_by_packets
from dasklab.breakdown.bottlenecks import LATE, LINK, OWN, PLACEMENT, SLOW, avoidable
from dasklab.breakdown.busy import Spells
from dasklab.breakdown.causes import COMPUTE, LAG, WIRE
from dasklab.breakdown.replay import Replay
from dasklab.breakdown.run import Need, Run, Task
from dasklab.breakdown.summary import Difference, Summary, summarise, summed

PAIR = "worker-3 < worker-1"
OLD = Summary(
    makespan_s=4.0,
    threads=3,
    runs=5,
    account={(COMPUTE, "worker-1"): 3.0, (LAG, "worker-2"): 1.0},
    path={(COMPUTE, "worker-1"): 4.0},
    culprits={(OWN, "worker-1"): 4.0},
)
NEW = Summary(
    makespan_s=7.7,
    threads=3,
    runs=5,
    account={(COMPUTE, "worker-1"): 3.0, (LAG, "worker-2"): 1.3, (WIRE, PAIR): 3.4},
    path={(COMPUTE, "worker-1"): 4.0, (WIRE, PAIR): 3.7},
    culprits={(OWN, "worker-1"): 4.0, (LINK, PAIR): 3.7},
)


def test_a_difference_in_words() -> None:
    said = wording.difference(Difference(OLD, NEW))
    assert said == "+3.70 s (4.00 to 7.70 s): on the critical path +3.70 s the wire (worker-3)."


@pytest.mark.parametrize(
    ("moved", "seconds", "said"),
    [
        ((10.0, 10.0), 8.0, {"link": 6.0}),  # as many bytes, four times as slow
        ((10.0, 20.0), 4.0, {"placement": 2.0}),  # twice the bytes at the same seconds a byte
        ((10.0, 20.0), 12.0, {"placement": 2.0, "link": 8.0}),  # both: the bytes at the old price
        ((20.0, 10.0), 8.0, {"link": 6.0}),  # fewer bytes are no excuse for a link
    ],
)
def test_more_data_is_the_placement_s_and_slower_bytes_are_the_link_s(
    moved: tuple[float, float], seconds: float, said: dict[str, float]
) -> None:
    """One of the first trial's two seconds is for bytes that another placement would have spared."""
    old, new = (
        Summary(
            makespan_s=total,
            threads=3,
            runs=1,
            culprits={(LINK, PAIR): total / 2, (PLACEMENT, PAIR): total / 2},
            moved_bytes=size,
        )
        for total, size in zip((2.0, seconds), moved, strict=True)
    )
    found = summed(Difference(old, new).culprits)
    assert {name: s for name, s in found.items() if abs(s) > 1e-9} == pytest.approx(said)


def test_a_table_ends_with_the_makespan() -> None:
    *_, last = wording.rows(NEW)
    assert last[:4] == ("together", "7.700", "100.0%", "7.700")
    *_, last = wording.difference_rows(Difference(OLD, NEW))
    assert last[1:5] == ("4.000", "7.700", "+3.700", "+3.700")


def test_an_account_in_words() -> None:
    said = wording.paragraph(NEW)
    assert said.startswith(
        "A run took 7.70 s on 3 threads (mean of 5 runs). Their time: 44% waiting for data: on"
    )
    assert "4.00 s computing (worker-1), 3.70 s the wire (worker-3)" in said
    assert "Had the network taken no time" not in said
    told = wording.paragraph(replace(NEW, replayed=Replay(7.3, 4.2)))
    assert told.endswith(
        "Had the network taken no time: 4.43 s, at most 3.27 s less (replayed on the same workers: 4.20 s,"
        " with the network as it was 7.30 s, -5.2%)."
    )


def tasks(slow_s: float) -> list[Task]:
    """Ten tasks on each of two workers, one after the other; those on worker-2 may take longer."""
    found, begin = [], {"worker-1": 0.0, "worker-2": 0.0}
    for number in range(20):
        worker = f"worker-{number % 2 + 1}"
        start = begin[worker]
        begin[worker] = start + (slow_s if worker == "worker-2" else 1.0)
        found.append(Task(f"inc-{number}", worker, 1, start, begin[worker], decided=start))
    for earlier, later in zip(found[1::2], found[3::2], strict=False):
        later.trigger = earlier.key
    return found


def test_a_slow_worker_is_told_by_its_like() -> None:
    run = Run(0, 0.0, 30.0, {"worker-1": 1, "worker-2": 1}, tasks(3.0))
    ranked = summarise([run]).ranked()
    assert ranked[0] == (SLOW, "worker-2", pytest.approx(20.0))


def test_a_worker_that_did_little_is_slow_if_it_took_longer_than_anybody() -> None:
    some = [task for task in tasks(3.0) if task.worker == "worker-1"]
    late = [Task(f"inc-{at + 90}", "worker-2", 1, at, at + 9, decided=at) for at in (0, 9)]
    late[1].trigger = late[0].key
    run = Run(0, 0.0, 18.0, {"worker-1": 1, "worker-2": 1}, [*some, *late])
    assert summarise([run]).ranked()[0] == (SLOW, "worker-2", pytest.approx(16.0))
    late[0].stop = 0.9
    assert summarise([run]).ranked()[0][0] != SLOW


def test_what_holds_the_interpreter_is_no_slow_worker() -> None:
    run = Run(0, 0.0, 30.0, {"worker-1": 1, "worker-2": 1}, tasks(3.0))
    run.busy = {"worker-2": Spells([(0.0, 30.0)])}
    assert summarise([run]).ranked()[0] == (LATE, "worker-2", pytest.approx(20.0))


def test_placement_that_moves_more_than_it_must() -> None:
    needs = (Need("a", 3.0, ("worker-1",)), Need("b", 1.0, ("worker-2", "worker-3")))
    task = Task("c", "worker-3", 1, 0.0, 1.0, needs=needs)
    assert avoidable(task, ("worker-1", "worker-2", "worker-3")) == pytest.approx(2 / 3)
    assert avoidable(replace(task, worker="worker-1"), ("worker-1", "worker-2")) == 0
    assert avoidable(replace(task, needs=()), ("worker-1",)) == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.02])
def test_clocks_against_a_capture(delay_s: float) -> None:
    """The scheduler is 0.5 s ahead of the capture, the worker 2 s behind; keys come again in each run."""
    chance = np.random.default_rng(3)
    sent = np.sort(chance.uniform(100, 130, 400))
    ways = [0.0003 + chance.exponential(0.001, 400) for _ in range(4)]
    packet = sent + ways[0]
    arrived = packet + ways[1] + delay_s
    start, reported = arrived + 0.01, arrived + 0.05
    finished = reported + ways[2]
    handled = finished + ways[3]
    keys = [f"x-{number % 40}" for number in range(400)]
    frame = pd.DataFrame(
        {"key": keys, "worker": "worker-1", "sent_s": sent + 0.5, "handled_s": handled + 0.5,
         "arrived_s": arrived - 2, "start_s": start - 2, "reported_s": reported - 2}
    )  # fmt: skip
    seen = [
        {"key": k, "start_s": s - 2, "sent_ns": int(p * 1e9), "finished_ns": int(f * 1e9)}
        for k, s, p, f in zip(keys, start, packet, finished, strict=True)
    ]
    known = {("scheduler", "worker-1"): Delay(after=delay_s)}
    found = clocks_by_packets({"tasks": frame}, seen, known)
    for node, true in (("scheduler", 0.5), ("worker-1", -2.0)):
        assert found[node].low_s <= true <= found[node].high_s
        assert found[node].offset_s == pytest.approx(true, abs=1e-4)
    stop_to_wire = finished - found["worker-1"].to_reference(reported - 2)
    assert stop_to_wire.min() > -found["worker-1"].half_s
