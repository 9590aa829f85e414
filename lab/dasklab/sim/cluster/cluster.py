"""A cluster of real Dask servers in virtual time: one scheduler, its workers, and a client."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distributed import Client
from distributed.comm.addressing import get_address_host

from dasklab.sim.cluster.comm import Fabric, SimProcess
from dasklab.sim.cluster.servers import SimScheduler, SimWorker, adapted, complete
from dasklab.sim.cluster.shuffle import Shuffle, place
from dasklab.sim.cluster.tasks import Draw, SimExecutor, Work
from dasklab.sim.costs import Costs, Role
from dasklab.sim.kernel import Host, Kernel, VirtualLoop
from dasklab.sim.network import Network


@dataclass(frozen=True)
class ClusterSpec:
    """What a simulated cluster consists of.

    Attributes:
        workers: their names.
        threads: threads of each worker.
        hosts: by machine's name, the cores that it runs on.
        costs: what messages cost a process of each role.
        shuffled_bytes: what each transfer task of a peer-to-peer shuffle gives away.
        late_s: by worker, how much longer its first task takes.
        handoff_s: how long each task waits for its thread.
    """

    workers: tuple[str, ...]
    threads: int
    hosts: Mapping[str, Host]
    costs: Mapping[Role, Costs]
    shuffled_bytes: float = 0.0
    late_s: Mapping[str, float] = field(default_factory=dict)
    handoff_s: float = 0.0


class SimCluster:
    """A scheduler, workers and a client, connected.

    Attributes:
        loops: the event loop of each process, by name.
        workers: the running workers, by name.
        computed: number of tasks that workers have started.
    """

    def __init__(self, kernel: Kernel, network: Network, spec: ClusterSpec, draw: Draw) -> None:
        self.kernel, self._spec, self._draw = kernel, spec, draw
        self.fabric = Fabric(kernel, network)
        self._shuffle = Shuffle(self.fabric, self._placement, spec.shuffled_bytes)
        self.loops: dict[str, VirtualLoop] = {}
        self.workers: dict[str, Any] = {}
        self._executors: dict[str, SimExecutor] = {}
        # What killed processes leave is kept: if it were collected, its cleanup would run.
        self._killed: list[Any] = []
        self.computed = 0

    def start(self) -> None:
        """Start all servers and connect the client."""
        self.fabric.register_scheme()
        self.scheduler = self._complete("scheduler", "scheduler", _scheduler())
        address = self.scheduler.address
        starting = {name: self._begin(name, self._worker(name, address)) for name in self._spec.workers}
        for task in starting.values():  # one after the other: to check thousands at each action takes long
            self.kernel.run_until(task.done)
        self.workers = {name: task.result() for name, task in starting.items()}
        self.client = self._complete("client", "client", _client(address))

    def kill(self, name: str) -> None:
        self.fabric.kill(name)
        self._executors.pop(name).kill()
        self._shuffle.kill(name)
        loop = self.loops.pop(name)
        self._killed += [loop, self.workers.pop(name), asyncio.all_tasks(loop)]

    def restart(self, name: str, start_s: float) -> None:
        """Start a killed worker again; its process computes for ``start_s`` before it registers."""
        self._spec.hosts[name].compute(start_s, lambda: self._register_again(name))

    @property
    def handoff_total_s(self) -> float:
        """Total time that tasks have spent between their workers' event loops and threads."""
        return sum(executor.handoff_total_s for executor in self._executors.values())

    def sent_bytes(self) -> dict[str, int]:
        """Return the bytes that each running worker has sent to others, by address: fetched or shuffled."""
        return {
            worker.address: worker.transfer_outgoing_bytes_total + self._shuffle.sent_bytes[name]
            for name, worker in self.workers.items()
        }

    def errors(self, expected: tuple[type[Exception], ...] = ()) -> list[str]:
        """Return the exceptions that nobody retrieved from an event loop, except those of expected types."""
        contexts = [context for loop in self.loops.values() for context in loop.errors]
        return [str(context) for context in contexts if not isinstance(context.get("exception"), expected)]

    def _process(self, name: str, role: Role) -> VirtualLoop:
        loop = self.loops[name] = VirtualLoop.create(self.kernel, self._spec.hosts[name])
        self.fabric.add(SimProcess(name, loop, self._spec.costs.get(role, Costs())))
        return loop

    def _begin(self, name: str, coroutine: Any) -> asyncio.Task[Any]:
        return self._process(name, "worker").create_task(coroutine)

    def _complete(self, name: str, role: Role, coroutine: Any) -> Any:
        return complete(self.kernel, self._process(name, role), coroutine)

    async def _worker(self, name: str, scheduler: str) -> Any:
        spec = self._spec
        executor = SimExecutor(
            self.kernel,
            name,
            spec.hosts[name],
            self._draw_and_count,
            self._shuffle,
            spec.late_s.get(name, 0.0),
            spec.handoff_s,
        )
        self._executors[name] = executor
        options: dict[str, Any] = {
            "data": {},
            "memory_limit": 0,
            "executor": executor,
            "nthreads": spec.threads,
        }
        return await SimWorker(scheduler, name=name, host=f"sim://{name}", dashboard=False, **options)

    def _register_again(self, name: str) -> None:
        async def worker() -> None:
            self.workers[name] = await self._worker(name, self.scheduler.address)

        self._begin(name, worker())

    def _placement(self, key: Any, machine: str) -> tuple[str, list[str]] | None:
        """Return a transfer task's shuffle and the machine of each output partition; None for other tasks."""
        placement = place(self.scheduler, key, self.workers[machine].address)
        return placement and (placement[0], [get_address_host(address) for address in placement[1]])

    def _draw_and_count(self, key: str, prefix: str) -> Work:
        self.computed += 1
        return self._draw(key, prefix)


async def _scheduler() -> Any:
    return await SimScheduler(host="sim://scheduler", dashboard=False, validate=False)


async def _client(address: str) -> Any:
    return await Client(address, asynchronous=True)


@contextmanager
def running_cluster(
    kernel: Kernel, network: Network, spec: ClusterSpec, draw: Draw, settings: dict[str, Any]
) -> Iterator[SimCluster]:
    """Start a cluster. On exit its loops stop at once: nothing is shut down, because the process ends."""
    with adapted(kernel, settings):
        cluster = SimCluster(kernel, network, spec, draw)
        cluster.start()
        try:
            yield cluster
        finally:
            for loop in cluster.loops.values():
                loop.close()
