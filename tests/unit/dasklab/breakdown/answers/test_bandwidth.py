"""Dask's bandwidth estimates beside what the links gave."""

from __future__ import annotations

import pandas as pd
from dasklab.breakdown.answers.bandwidth import BandwidthEstimate, bandwidth_estimates
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show import wording
from dasklab.model.files import Throughput

from tests.unit.dasklab.breakdown.timelines import Row, fetch, make_repeat, task

RECORDED = pd.DataFrame(
    [
        (0, "", "", 100e6),  # of a warm-up: not the last repeat's
        (1, "", "", 50e6),
        (1, "b", "a", 8e6),
    ],
    columns=["repeat", "receiver", "sender", "bytes_per_s"],
)


def repeat(*fetches: Row) -> Repeat:
    needs = [("x", 20e6, ("a",)), ("y", 10e6, ("a",)), ("z", 28, ("a",))]
    return make_repeat(
        [task("t", "b", 0, 3.0, 4.0, needs=needs)], fetches, number=1, threads={"a": 1, "b": 1}
    )


def probe(src: str, dst: str, mbit: float, proto: str = "tcp") -> Throughput:
    row = {"src": src, "dst": dst, "phase": "before", "proto": proto, "mbit": mbit, "seconds": 2}
    return Throughput.model_validate(row)


def test_each_pair_has_what_is_known_of_it() -> None:
    moved = repeat(
        fetch("b", "a", 0.0, 2.0, ("x",)),
        fetch("b", "a", 1.0, 2.0, ("y",)),
        fetch("b", "a", 0.0, 0.5, ("x",), status="busy"),
        fetch("b", "a", 2.0, 3.0, ("z",)),  # too small to say something about bandwidth
    )
    probes = [probe("a", "b", 100), probe("a", "b", 60), probe("b", "a", 80), probe("s", "a", 9)]
    assert bandwidth_estimates(RECORDED, [moved], [*probes, probe("b", "a", 1, "udp")]) == [
        BandwidthEstimate("a", "b", 50e6, None, None, 10e6),
        BandwidthEstimate("b", "a", 50e6, 8e6, 10e6, 10e6),
    ]


def test_without_records_nothing_is_reported() -> None:
    assert bandwidth_estimates(RECORDED[:0], [repeat()], []) == []
    assert wording.bandwidth_sentence([]) == ""


def test_the_sentence_names_the_pair_that_is_farthest_from_the_plan() -> None:
    pairs = [
        BandwidthEstimate("a", "b", 50e6, None, None, 40e6),
        BandwidthEstimate("b", "a", 50e6, 8e6, 5e6, 60e6),
    ]
    assert wording.bandwidth_sentence(pairs) == (
        "Dask plans with 50.0 MB/s between all pairs; b received 5.0 MB/s from a: 10.0 times less."
    )
    fast = [BandwidthEstimate("a", "b", 50e6, None, None, 100e6)]
    assert wording.bandwidth_sentence(fast).endswith(
        "a received 100.0 MB/s from b: no pair achieved less than planned."
    )
