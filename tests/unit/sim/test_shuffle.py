"""Shards of a peer-to-peer shuffle cross the network, and its barrier waits for them."""

from __future__ import annotations

import pytest

from lab.sim.cluster.shuffle import Shuffle
from lab.sim.kernel import Kernel
from lab.sim.network import Network, Port
from lab.sim.network.fluid import Link

RATE = 1e6
RTT = 2e-4
WORKERS = ("a", "b", "c")
OUTPUTS = ("a", "b", "c") * 2  # whose partitions are
PLACES = {"transfer": ("one", OUTPUTS), "another's": ("two", OUTPUTS), "add": None}
BARRIER, OTHER = "shuffle-barrier-one", "shuffle-barrier-two"  # as Dask calls them


class Told:
    """A shuffle among three workers on 1 MB/s, and when its barriers began."""

    def __init__(self, nbytes: float) -> None:
        self.kernel = Kernel(0)
        network = Network(self.kernel, {name: Port(Link(RATE), Link(RATE)) for name in WORKERS}, RTT)
        self.shuffle = Shuffle(self.kernel, network, lambda key, machine: PLACES[key], nbytes)
        self.began: list[float] = []

    def due(self, key: str) -> None:
        self.shuffle.when_due(key, lambda: self.began.append(self.kernel.now))

    def run(self, tasks: int) -> list[float]:
        assert self.kernel.run(lambda: len(self.began) == tasks)
        return self.began


def test_a_barrier_waits_until_all_shards_of_a_transfer_are_there() -> None:
    told = Told(300_000)
    told.shuffle.ended("transfer", "a")
    told.due(BARRIER)
    told.due("add")  # nobody else waits
    # four of six shards leave by one link; two stay
    assert told.run(2) == pytest.approx([0.0, 0.2 + RTT / 2])


def test_a_barrier_waits_for_its_own_shuffle_only() -> None:
    told = Told(300_000)
    told.shuffle.ended("transfer", "a")
    told.shuffle.ended("another's", "b")
    told.shuffle.ended("another's", "b")
    told.due(OTHER)
    told.due(BARRIER)
    # two go from a, four from b; where both come to c each has half of its link
    assert told.run(2) == pytest.approx([0.2 + RTT / 2, 0.4 + RTT / 2])


def test_shards_of_all_workers_cross_at_once() -> None:
    told = Told(300_000)
    for worker in WORKERS:
        told.shuffle.ended("transfer", worker)
    told.due(BARRIER)
    assert told.run(1) == pytest.approx([0.2 + RTT / 2])


def test_a_shuffle_that_is_over_keeps_no_barrier() -> None:
    told = Told(300_000)
    told.shuffle.ended("add", "a")
    told.due(BARRIER)
    assert told.began == [0.0]
