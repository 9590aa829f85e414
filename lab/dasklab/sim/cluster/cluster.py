"""A cluster of real Dask servers: one scheduler, its workers, a client that is driven from outside."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distributed import Client
from distributed.comm.addressing import get_address_host

from dasklab.sim.cluster.comm import Process, World
from dasklab.sim.cluster.light import LightWorker
from dasklab.sim.cluster.servers import SimScheduler, SimWorker, adapted, complete
from dasklab.sim.cluster.shuffle import Shuffle, placed
from dasklab.sim.cluster.tasks import Draw, SimExecutor, Work
from dasklab.sim.costs import Costs, Role
from dasklab.sim.kernel import Host, Kernel, VirtualLoop
from dasklab.sim.network import Network


@dataclass(frozen=True)
class Machines:
    """Who is there: ``workers`` by name with their threads, all on the hosts named (default: their own)."""

    workers: tuple[str, ...]
    threads: int
    hosts: Mapping[str, Host]
    costs: Mapping[Role, Costs]
    light: bool = False  # workers are only state machines
    shuffled_bytes: float = 0.0  # that a task of a peer-to-peer shuffle gives away
    late_s: Mapping[str, float] = field(default_factory=dict)  # a worker's first task takes so much longer
    handoff_s: float = 0.0  # a task waits for its thread


class Cluster:
    """Scheduler, workers and client, connected."""

    def __init__(self, kernel: Kernel, network: Network, machines: Machines, draw: Draw) -> None:
        self.kernel, self.machines, self._draw = kernel, machines, draw
        self.world = World(kernel, network)
        self._shuffle = Shuffle(self.world, self._placed, machines.shuffled_bytes)
        self.loops: dict[str, VirtualLoop] = {}
        self.workers: dict[str, Any] = {}
        self._executors: dict[str, SimExecutor] = {}
        self._gone: list[Any] = []  # processes that were killed: nothing of theirs runs, not even its end
        self._peers: dict[str, LightWorker] = {}
        self.computed = 0

    def start(self) -> None:
        """Start all servers and connect the client."""
        self.world.register()
        self.scheduler = self._run("scheduler", "scheduler", _scheduler())
        address = self.scheduler.address
        starting = {name: self._begin(name, self._worker(name, address)) for name in self.machines.workers}
        for task in starting.values():  # to ask all of thousands at each action takes long
            self.kernel.run(task.done)
        self.workers = {name: task.result() for name, task in starting.items()}
        self.client = self._run("client", "client", _client(address))

    def _process(self, name: str, role: Role) -> VirtualLoop:
        loop = self.loops[name] = VirtualLoop.of(self.kernel, self.machines.hosts[name])
        costs = self.machines.costs.get(role, Costs())
        self.world.add(Process(name, loop, costs))
        return loop

    def _begin(self, name: str, coroutine: Any) -> asyncio.Task[Any]:
        return self._process(name, "worker").create_task(coroutine)

    def _run(self, name: str, role: Role, coroutine: Any) -> Any:
        return complete(self.kernel, self._process(name, role), coroutine)

    async def _worker(self, name: str, scheduler: str) -> Any:
        host, threads = self.machines.hosts[name], self.machines.threads
        late_s = self.machines.late_s.get(name, 0.0)
        handoff_s = self.machines.handoff_s
        executor = SimExecutor(self.kernel, name, host, self._drawn, self._shuffle, late_s, handoff_s)
        self._executors[name] = executor
        if self.machines.light:
            return await LightWorker(self.world, name, threads, executor, self._peers).start(self.scheduler)
        options: dict[str, Any] = {"data": {}, "memory_limit": 0, "executor": executor, "nthreads": threads}
        return await SimWorker(scheduler, name=name, host=f"sim://{name}", dashboard=False, **options)

    def _placed(self, key: Any, machine: str) -> tuple[str, list[str]] | None:
        """A transfer task's shuffle, and the machine of each partition that comes out of it."""
        found = placed(self.scheduler, key, self.workers[machine].address)
        return found and (found[0], [get_address_host(address) for address in found[1]])

    def _drawn(self, key: str, prefix: str) -> Work:
        self.computed += 1
        return self._draw(key, prefix)

    def kill(self, name: str) -> None:
        """A worker's process is gone."""
        self.world.kill(name)
        self._executors.pop(name).kill()
        self._shuffle.kill(name)
        loop = self.loops.pop(name)
        self._gone += [loop, self.workers.pop(name), asyncio.all_tasks(loop)]

    def restart(self, name: str, start_s: float) -> None:
        """A worker's process is started; it computes for so long before it is one."""
        self.machines.hosts[name].compute(start_s, lambda: self._rise(name))

    def _rise(self, name: str) -> None:
        async def worker() -> None:
            self.workers[name] = await self._worker(name, self.scheduler.address)

        self._begin(name, worker())

    @property
    def handed_s(self) -> float:
        """Of all tasks so far, what passed between their workers' loops and threads."""
        return sum(executor.handed_s for executor in self._executors.values())

    def sent_bytes(self) -> dict[str, int]:
        """The data that each worker was asked for so far; one that died took its number along."""
        return {worker.address: worker.transfer_outgoing_bytes_total for worker in self.workers.values()}

    def errors(self, expected: tuple[type[Exception], ...] = ()) -> list[str]:
        """What went wrong unseen, but for what was to be expected."""
        every = [error for loop in self.loops.values() for error in loop.errors]
        return [str(error) for error in every if not isinstance(error.get("exception"), expected)]


async def _scheduler() -> Any:
    return await SimScheduler(host="sim://scheduler", dashboard=False, validate=False)


async def _client(address: str) -> Any:
    return await Client(address, asynchronous=True)


@contextmanager
def running(
    kernel: Kernel, network: Network, machines: Machines, draw: Draw, settings: dict[str, Any]
) -> Iterator[Cluster]:
    """A cluster that is up. It is left, not taken down: nobody is interested, and the process ends."""
    with adapted(kernel, settings):
        cluster = Cluster(kernel, network, machines, draw)
        cluster.start()
        try:
            yield cluster
        finally:
            for loop in cluster.loops.values():
                loop.close()
