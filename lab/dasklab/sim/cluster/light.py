"""A worker that is only Dask's state machine of one: for clusters of which whole Workers would be too many.

What it decides is Dask's own: what to fetch from whom, what to run next, what to tell the scheduler, which it
does over a real connection. Left out is the machinery between workers: requests and answers cross the network
with estimated sizes and are not packed, connections are there already, heartbeats reach the scheduler without
being packed. Work is not recorded in spans, and nothing but tasks and fetches is known here.
"""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Hashable
from functools import partial
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed.batched import BatchedSend
from distributed.comm.core import CommClosedError, connect
from distributed.metrics import time
from distributed.protocol.serialize import to_serialize
from distributed.worker_state_machine import (
    AcquireReplicasEvent,
    BaseWorker,
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteSuccessEvent,
    FindMissingEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    RefreshWhoHasEvent,
    RemoveReplicasEvent,
    RetryBusyWorkerEvent,
    StateMachineEvent,
    StealRequestEvent,
    WorkerState,
)

from dasklab.sim.cluster.comm import ANSWER_BYTES, Listener, World
from dasklab.sim.cluster.tasks import SimExecutor
from dasklab.sim.kernel import set_unless_done
from dasklab.sim.network import Channel

EVENTS: dict[str, type[StateMachineEvent]] = {
    "acquire-replicas": AcquireReplicasEvent,
    "cancel-compute": CancelComputeEvent,
    "compute-task": ComputeTaskEvent,
    "free-keys": FreeKeysEvent,
    "refresh-who-has": RefreshWhoHasEvent,
    "remove-replicas": RemoveReplicasEvent,
    "steal-request": StealRequestEvent,
}
REQUEST_BYTES, KEY_BYTES, HEARTBEAT_BYTES = 300, 80, 1500  # about what A sends
HEARTBEAT = ("heartbeat", "its answer")  # two operations
BUSY_RETRY_S = 0.15
LARGE_BYTES = 1_000_000  # from this size on a transfer tells Dask something of bandwidth


class LightWorker(BaseWorker):
    """A worker of a simulated cluster; ``peers`` are all of them, by address."""

    def __init__(
        self, world: World, name: str, threads: int, executor: SimExecutor, peers: dict[str, LightWorker]
    ) -> None:
        self._world, self._process, self.name = world, world.here(), name
        self._executor, self._peers = executor, peers
        self._listener = Listener(world, name, self._serve_scheduler, deserialize=True)
        self.address = self._listener.contact_address
        connections = dask.config.get("distributed.worker.connections")
        state = WorkerState(
            nthreads=threads,
            address=self.address,
            data={},
            validate=False,
            transfer_incoming_count_limit=connections["outgoing"],
            transfer_message_bytes_limit=parse_bytes(
                dask.config.get("distributed.worker.transfer.message-bytes-limit")
            ),
        )
        super().__init__(state)
        self._outgoing_limit = connections["incoming"]
        self._outgoing = 0
        self._ways: dict[str, Channel] = {}
        self.transfer_outgoing_bytes_total = 0
        self.bandwidth = 1.0 * parse_bytes(dask.config.get("distributed.scheduler.bandwidth"))
        self.bandwidth_workers: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        peers[self.address] = self

    # --- to and from the scheduler -------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> LightWorker:
        """Register with the scheduler, whose object is called for heartbeats."""
        await self._listener.start()
        self._scheduler = scheduler
        comm = await connect(scheduler.address)
        await comm.write(self._registration(), serializers=["msgpack"])
        answer = await comm.read(deserializers=["msgpack"])
        assert answer["status"] == "OK", answer
        self._stream = BatchedSend(interval="2ms")
        self._stream.start(comm)
        loop = self._process.loop
        self._tasks = [loop.create_task(self._listen(comm)), loop.create_task(self._beat(answer))]
        return self

    def _registration(self) -> dict[str, Any]:
        said: dict[str, Any] = {key: {} for key in ("resources", "services", "versions", "extra")}
        return said | {
            "op": "register-worker",
            "reply": False,
            "address": self.address,
            "status": "running",
            "nthreads": self.state.nthreads,
            "name": self.name,
            "now": time(),
            "memory_limit": 0,
            "local_directory": "",
            "nanny": None,
            "pid": 1,
            "metrics": self._metrics(),
            "stimulus_id": f"worker-connect-{time()}",
            "server_id": self.name,
        }

    def _metrics(self) -> dict[str, Any]:
        workers, self.bandwidth_workers = dict(self.bandwidth_workers), defaultdict(lambda: (0.0, 0))
        return {
            "task_counts": {},
            "bandwidth": {"total": self.bandwidth, "workers": workers, "types": {}},
            "digests_total_since_heartbeat": {},
            "managed_bytes": self.state.nbytes,
            "spilled_bytes": {"memory": 0, "disk": 0},
            "transfer": {},
            "event_loop_interval": 0.0,
            "cpu": 0,
            "memory": 0,
        }

    async def _listen(self, comm: Any) -> None:
        while True:
            try:
                messages = await comm.read()
            except CommClosedError:
                return
            for message in messages if isinstance(messages, list | tuple) else [messages]:
                if event := EVENTS.get(message.pop("op")):
                    self.handle_stimulus(event(**message))

    async def _beat(self, answer: dict[str, Any]) -> None:
        interval_s = answer["heartbeat-interval"]
        while True:
            await asyncio.sleep(interval_s)
            loop = self._world.processes_by_name["scheduler"].loop
            arrived = partial(loop.call_soon, self._heard, time(), self._metrics())
            self._send("scheduler", HEARTBEAT_BYTES, arrived)
            if self.state.missing_dep_flight:  # as often ``Worker`` asks who has what a peer had not
                self.handle_stimulus(FindMissingEvent(stimulus_id=f"find-missing-{time()}"))

    def _heard(self, now: float, metrics: dict[str, Any]) -> None:
        """In the scheduler's process: it reads the heartbeat and answers."""
        self._world.charge(self._world.processes_by_name["scheduler"], HEARTBEAT, HEARTBEAT_BYTES)
        self._scheduler.heartbeat_worker(address=self.address, now=now, metrics=metrics)

    def batched_send(self, msg: dict[str, Any]) -> None:
        """To the scheduler, with the next batch."""
        self._stream.send(msg)

    async def _serve_scheduler(self, comm: Any) -> None:
        """The scheduler asks for results that the client wants."""
        while True:
            try:
                request = await comm.read()
                found = {key: to_serialize(self.state.data[key]) for key in request["keys"]}
                await comm.write({"status": "OK", "data": found})
                await comm.read()
            except CommClosedError:
                return

    # --- between workers -----------------------------------------------------------------------------------

    def _send(self, machine: str, nbytes: int, deliver: Any) -> None:
        """Let a message go that is not really packed."""
        if machine not in self._ways:
            self._ways[machine] = Channel(self._world.network, self.name, machine)
        self._ways[machine].send(self._pay(nbytes), nbytes, deliver, self._process.pace)

    def _pay(self, nbytes: int) -> float:
        return self._world.charge(self._process, None, nbytes)

    async def gather_dep(
        self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str
    ) -> StateMachineEvent:
        """Ask a peer for data and wait for it."""
        peer, start = self._peers[worker], time()
        answered = self._process.loop.create_future()
        keys = list(to_gather)

        def asked() -> None:
            peer._process.loop.call_soon(peer._serve, self, keys, answered)

        self._send(peer.name, REQUEST_BYTES + KEY_BYTES * len(keys), asked)
        data = await answered
        stimulus = f"gather-dep-{time()}"
        if data is None:
            return GatherDepBusyEvent(worker=worker, total_nbytes=total_nbytes, stimulus_id=stimulus)
        nbytes = sum(value.nbytes_ for value in data.values())
        self._pay(nbytes)
        self._send(peer.name, ANSWER_BYTES, lambda: peer._process.loop.call_soon(peer._thanked))
        self._learn(worker, nbytes, time() - start)
        return GatherDepSuccessEvent(
            worker=worker, total_nbytes=total_nbytes, data=data, stimulus_id=stimulus
        )

    def _serve(self, peer: LightWorker, keys: list[Any], answered: asyncio.Future[Any]) -> None:
        self._pay(REQUEST_BYTES)
        data = None
        nbytes = ANSWER_BYTES
        if self._outgoing < self._outgoing_limit:
            self._outgoing += 1
            held: Any = self.state.data
            data = {key: held[key] for key in keys if key in held}
            size = sum(value.nbytes_ for value in data.values())
            self.transfer_outgoing_bytes_total += size
            nbytes = REQUEST_BYTES + KEY_BYTES * len(data) + size

        def arrived() -> None:
            peer._process.loop.call_soon(set_unless_done, answered, data)

        self._send(peer.name, nbytes, arrived)

    def _thanked(self) -> None:
        self._pay(ANSWER_BYTES)
        self._outgoing -= 1

    def _learn(self, worker: str, nbytes: int, seconds: float) -> None:
        """As ``Worker`` does."""
        if nbytes > LARGE_BYTES:
            bandwidth = nbytes / max(0.001, seconds)
            self.bandwidth = self.bandwidth * 0.95 + bandwidth * 0.05
            total, count = self.bandwidth_workers[worker]
            self.bandwidth_workers[worker] = (total + bandwidth, count + 1)

    # --- its own -------------------------------------------------------------------------------------------

    async def execute(self, key: Any, *, stimulus_id: str) -> StateMachineEvent:
        """Let a task take its time."""
        state = self.state.tasks[key]
        run_id, spec = state.run_id, state.run_spec
        data = {needed.key: self.state.data[needed.key] for needed in state.dependencies}
        state.start_time = time()
        done = await self._executor.simulate(self._process.loop, None, spec, data, 0.0)
        return ExecuteSuccessEvent(
            key=key,
            run_id=run_id,
            value=done["result"],
            start=done["start"],
            stop=done["stop"],
            nbytes=done["nbytes"],
            type=done["type"],
            stimulus_id=f"task-finished-{time()}",
        )

    async def retry_busy_worker_later(self, worker: str) -> StateMachineEvent:
        """Let a busy peer alone for a while."""
        await asyncio.sleep(BUSY_RETRY_S)
        return RetryBusyWorkerEvent(worker=worker, stimulus_id=f"retry-busy-worker-{time()}")

    def digest_metric(self, name: Hashable, value: float) -> None:
        """Nobody looks."""
