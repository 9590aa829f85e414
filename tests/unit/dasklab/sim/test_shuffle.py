"""Shards of a peer-to-peer shuffle cross the network, and its barrier waits for them."""

from __future__ import annotations

import dask
import pytest
from dasklab.sim.cluster.comm import ANSWER_BYTES, Fabric, SimProcess
from dasklab.sim.cluster.shuffle import Shuffle
from dasklab.sim.costs import MESSAGE, Costs
from dasklab.sim.kernel import Host, Kernel, VirtualLoop
from dasklab.sim.network import Network, Port
from dasklab.sim.network.fluid import Pipe

RATE = 1e6
RTT = 2e-4
ANSWER_S = ANSWER_BYTES / RATE + RTT / 2
WORKERS = ("a", "b", "c")
OUTPUTS = ("a", "b", "c") * 2  # whose partitions are
PLACES = {"transfer": ("one", OUTPUTS), "another's": ("two", OUTPUTS), "add": None}
BARRIER, OTHER = "shuffle-barrier-one", "shuffle-barrier-two"  # as Dask calls them


class Told:
    """A shuffle among three workers on 1 MB/s, and when its barriers began."""

    def __init__(self, nbytes: float, costs: Costs | None = None) -> None:
        self.kernel = Kernel(0)
        self.network = Network(self.kernel, {name: Port(Pipe(RATE), Pipe(RATE)) for name in WORKERS}, RTT)
        self.fabric = Fabric(self.kernel, self.network)
        for name in WORKERS:
            loop = VirtualLoop.create(self.kernel, Host(self.kernel))
            self.fabric.add(SimProcess(name, loop, costs or Costs()))
        self.shuffle = Shuffle(self.fabric, lambda key, machine: PLACES[key], nbytes)
        self.began: list[float] = []

    def due(self, key: str) -> None:
        self.shuffle.when_ready(key, lambda: self.began.append(self.kernel.now))

    def run(self, tasks: int) -> list[float]:
        assert self.kernel.run_until(lambda: len(self.began) == tasks)
        return self.began


def test_a_barrier_waits_until_all_shards_of_a_transfer_are_there_and_answered() -> None:
    told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.due(BARRIER)
    told.due("add")  # nobody else waits
    # four of six shards leave by one link; two stay
    assert told.run(2) == pytest.approx([0.0, 0.2 + RTT / 2 + ANSWER_S])


def test_a_barrier_waits_for_its_own_shuffle_only() -> None:
    told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.shuffle.task_ended("another's", "b")
    told.shuffle.task_ended("another's", "b")
    told.due(OTHER)
    told.due(BARRIER)
    # two go from a, four from b; where both come to c each has half of its link
    assert told.run(2) == pytest.approx([0.2 + RTT / 2 + ANSWER_S, 0.4 + RTT / 2 + ANSWER_S])


def test_shards_of_all_workers_cross_at_once() -> None:
    told = Told(300_000)
    for worker in WORKERS:
        told.shuffle.task_ended("transfer", worker)
    told.due(BARRIER)
    assert told.run(1) == pytest.approx([0.2 + RTT / 2 + ANSWER_S])


def test_what_is_for_one_worker_goes_together_as_far_as_a_message_may_be_long() -> None:
    told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.shuffle.task_ended("transfer", "a")
    told.due(BARRIER)
    told.run(1)
    assert told.network.messages == 2 * 2  # 200 kB to each of two workers, and their answers
    with dask.config.set({"distributed.p2p.comm.message-bytes-limit": "64 kB"}):
        told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.due(BARRIER)
    assert told.run(1)[0] == pytest.approx(0.2, rel=1e-2)
    assert told.network.messages == 4 * 2  # 64 and 36 kB to each


def test_no_more_messages_are_under_way_than_dask_allows() -> None:
    with dask.config.set({"distributed.p2p.comm.concurrency": 1}):
        told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.due(BARRIER)
    assert told.run(1) == pytest.approx([0.2 + 2 * (RTT / 2 + ANSWER_S)])  # one after the other


def test_a_message_costs_who_sends_and_who_receives() -> None:
    told = Told(300_000, Costs(op_s=0.1))
    told.shuffle.task_ended("transfer", "a")
    told.due(BARRIER)
    told.run(1)
    assert told.fabric.ops == pytest.approx({"a": 2 * 2 * MESSAGE, "b": 2 * MESSAGE, "c": 2 * MESSAGE})
    busy = {name: process.loop.busy_s for name, process in told.fabric.processes_by_name.items()}
    assert busy == pytest.approx({"a": 0.4 * MESSAGE, "b": 0.2 * MESSAGE, "c": 0.2 * MESSAGE})


def test_what_a_dead_worker_had_to_give_or_to_get_holds_nobody_up() -> None:
    told = Told(300_000)
    told.shuffle.task_ended("transfer", "a")
    told.shuffle.task_ended("transfer", "b")
    told.due(BARRIER)
    told.kernel.at(0.05, told.fabric.kill, "b")
    told.kernel.at(0.05, told.shuffle.kill, "b")
    # what is on its way to b arrives, and is refused there; a's other half is c's
    assert told.run(1)[0] == pytest.approx(0.2, rel=1e-2)


def test_who_dies_with_a_message_unread_answers_none_and_holds_nobody_up() -> None:
    told = Told(300_000, Costs(op_s=10.0))  # whoever has sent or read a message is busy for 3 s
    told.shuffle.task_ended("transfer", "a")
    told.fabric.processes_by_name["b"].loop.call_soon(told.fabric.processes_by_name["b"].loop.charge, 30.0)
    told.due(BARRIER)
    told.kernel.at(20.0, told.fabric.kill, "b")  # what a sent has lain there for long
    told.kernel.at(20.0, told.shuffle.kill, "b")
    assert told.run(1)[0] >= 20.0


def test_a_shuffle_that_is_over_keeps_no_barrier() -> None:
    told = Told(300_000)
    told.shuffle.task_ended("add", "a")
    told.due(BARRIER)
    assert told.began == [0.0]
