"""What Dask believes of the links, beside what they gave."""

from __future__ import annotations

import pandas as pd
from dasklab.breakdown import wording
from dasklab.breakdown.bandwidth import Belief, beliefs
from dasklab.breakdown.run import Fetch, Need, Run, Task
from dasklab.model.files import Throughput

RECORDED = pd.DataFrame(
    [
        (0, "", "", 100e6),  # of a warm-up: not the last run's
        (1, "", "", 50e6),
        (1, "b", "a", 8e6),
    ],
    columns=["run", "receiver", "sender", "bytes_per_s"],
)


def run(*fetches: Fetch) -> Run:
    task = Task(
        "t", "b", 0, 3.0, 4.0, needs=(Need("x", 20e6, ("a",)), Need("y", 10e6, ("a",)), Need("z", 28, ("a",)))
    )
    return Run(1, 0.0, 5.0, {"a": 1, "b": 1}, [task], list(fetches))


def probe(src: str, dst: str, mbit: float, proto: str = "tcp") -> Throughput:
    given = {"src": src, "dst": dst, "phase": "before", "proto": proto, "mbit": mbit, "seconds": 2}
    return Throughput.model_validate(given)


def test_each_pair_has_what_is_known_of_it() -> None:
    moved = run(
        Fetch("b", "a", 0.0, 2.0, ("x",)),
        Fetch("b", "a", 1.0, 2.0, ("y",)),
        Fetch("b", "a", 0.0, 0.5, ("x",), busy=True),
        Fetch("b", "a", 2.0, 3.0, ("z",)),  # so little says nothing of a bandwidth
    )
    probes = [probe("a", "b", 100), probe("a", "b", 60), probe("b", "a", 80), probe("s", "a", 9)]
    assert beliefs(RECORDED, [moved], [*probes, probe("b", "a", 1, "udp")]) == [
        Belief("a", "b", 50e6, None, None, 10e6),
        Belief("b", "a", 50e6, 8e6, 10e6, 10e6),
    ]


def test_nothing_recorded_is_nothing_said() -> None:
    assert beliefs(RECORDED[:0], [run()], []) == []
    assert wording.belief([]) == ""


def test_the_sentence_is_about_the_pair_that_is_farthest_from_it() -> None:
    pairs = [Belief("a", "b", 50e6, None, None, 40e6), Belief("b", "a", 50e6, 8e6, 5e6, 60e6)]
    assert (
        wording.belief(pairs)
        == "Dask plans with 50.0 MB/s between all pairs; b got 5.0 from a: 10.0 times less."
    )
    fast = [Belief("a", "b", 50e6, None, None, 100e6)]
    assert wording.belief(fast).endswith("a got 100.0 from b: no pair got less than that.")
