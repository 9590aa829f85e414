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
OUTPUTS = ("a", "b", "c") * 2  # the worker of each output partition
PLACEMENTS = {"transfer": ("one", OUTPUTS), "transfer of two": ("two", OUTPUTS), "add": None}
BARRIER, BARRIER_OF_TWO = "shuffle-barrier-one", "shuffle-barrier-two"  # keys as Dask forms them


class Cluster:
    """Three workers on links of 1 MB/s. ``started`` is when tasks started that were allowed to."""

    def __init__(self, nbytes: float, costs: Costs | None = None) -> None:
        self.kernel = Kernel(0)
        self.network = Network(self.kernel, {name: Port(Pipe(RATE), Pipe(RATE)) for name in WORKERS}, RTT)
        self.fabric = Fabric(self.kernel, self.network)
        for name in WORKERS:
            loop = VirtualLoop.create(self.kernel, Host(self.kernel))
            self.fabric.add(SimProcess(name, loop, costs or Costs()))
        self.shuffle = Shuffle(self.fabric, lambda key, machine: PLACEMENTS[key], nbytes)
        self.started: list[float] = []

    def start(self, key: str) -> None:
        self.shuffle.when_ready(key, lambda: self.started.append(self.kernel.now))

    def run(self, tasks: int) -> list[float]:
        assert self.kernel.run_until(lambda: len(self.started) == tasks)
        return self.started

    def kill(self, name: str, at_s: float) -> None:
        self.kernel.at(at_s, self.fabric.kill, name)
        self.kernel.at(at_s, self.shuffle.kill, name)


def test_barrier_waits_until_all_shards_have_arrived_and_are_answered() -> None:
    cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.start(BARRIER)
    cluster.start("add")  # any other task starts at once
    # Four of six shards leave over a's link; two stay
    assert cluster.run(2) == pytest.approx([0.0, 0.2 + RTT / 2 + ANSWER_S])


def test_barrier_waits_for_its_own_shuffle_only() -> None:
    cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.shuffle.task_ended("transfer of two", "b")
    cluster.shuffle.task_ended("transfer of two", "b")
    cluster.start(BARRIER_OF_TWO)
    cluster.start(BARRIER)
    # a sends to two workers, and so does b, twice as much; where both send to c each has half of its link
    assert cluster.run(2) == pytest.approx([0.2 + RTT / 2 + ANSWER_S, 0.4 + RTT / 2 + ANSWER_S])


def test_shards_of_all_workers_cross_at_the_same_time() -> None:
    cluster = Cluster(300_000)
    for worker in WORKERS:
        cluster.shuffle.task_ended("transfer", worker)
    cluster.start(BARRIER)
    assert cluster.run(1) == pytest.approx([0.2 + RTT / 2 + ANSWER_S])


def test_shards_for_one_worker_are_sent_together_up_to_the_message_limit() -> None:
    cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.shuffle.task_ended("transfer", "a")
    cluster.start(BARRIER)
    cluster.run(1)
    assert cluster.network.messages == 2 * 2  # 200 kB to each of two workers, and their answers
    with dask.config.set({"distributed.p2p.comm.message-bytes-limit": "64 kB"}):
        cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.start(BARRIER)
    assert cluster.run(1)[0] == pytest.approx(0.2, rel=1e-2)
    assert cluster.network.messages == 4 * 2  # 64 and 36 kB to each


def test_no_more_messages_are_under_way_than_dask_allows() -> None:
    with dask.config.set({"distributed.p2p.comm.concurrency": 1}):
        cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.start(BARRIER)
    assert cluster.run(1) == pytest.approx([0.2 + 2 * (RTT / 2 + ANSWER_S)])  # one after the other


def test_message_costs_its_sender_and_its_receiver() -> None:
    cluster = Cluster(300_000, Costs(op_s=0.1))
    cluster.shuffle.task_ended("transfer", "a")
    cluster.start(BARRIER)
    cluster.run(1)
    assert cluster.fabric.ops == pytest.approx({"a": 2 * 2 * MESSAGE, "b": 2 * MESSAGE, "c": 2 * MESSAGE})
    busy = {name: process.loop.busy_s for name, process in cluster.fabric.processes_by_name.items()}
    assert busy == pytest.approx({"a": 0.4 * MESSAGE, "b": 0.2 * MESSAGE, "c": 0.2 * MESSAGE})


def test_killed_worker_does_not_hold_up_the_barrier() -> None:
    cluster = Cluster(300_000)
    cluster.shuffle.task_ended("transfer", "a")
    cluster.shuffle.task_ended("transfer", "b")
    cluster.start(BARRIER)
    cluster.kill("b", at_s=0.05)
    # What is in flight to b arrives and is refused; the other half of a's shards goes to c
    assert cluster.run(1)[0] == pytest.approx(0.2, rel=1e-2)


def test_worker_killed_before_it_reads_a_message_does_not_hold_up_the_barrier() -> None:
    cluster = Cluster(300_000, Costs(op_s=10.0))  # a message costs its sender and its receiver 3 s
    cluster.shuffle.task_ended("transfer", "a")
    b = cluster.fabric.processes_by_name["b"]
    b.loop.call_soon(b.loop.charge, 30.0)
    cluster.start(BARRIER)
    cluster.kill("b", at_s=20.0)  # long after a's message has arrived
    assert cluster.run(1)[0] >= 20.0


def test_barrier_of_a_finished_shuffle_starts_at_once() -> None:
    cluster = Cluster(300_000)
    cluster.shuffle.task_ended("add", "a")
    cluster.start(BARRIER)
    assert cluster.started == [0.0]
