"""The light worker: Dask's worker state machine without the Worker around it, for clusters of thousands.

The decisions are Dask's own: what to fetch from whom, what to run next, what to send to the scheduler. The
connection to the scheduler is real. What is left out is the machinery between workers: requests and answers
cross the network with estimated sizes and are not packed, connections need no setup, and heartbeats reach the
scheduler without being packed. Work is not recorded in spans. Only tasks and fetches are supported.
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

from dasklab.sim.cluster.comm import ANSWER_BYTES, Fabric, Listener
from dasklab.sim.cluster.tasks import SimExecutor
from dasklab.sim.kernel import resolve
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
REQUEST_BYTES, KEY_BYTES, HEARTBEAT_BYTES = 300, 80, 1500  # about what a whole Worker sends
HEARTBEAT = ("heartbeat", "answer")  # counts as two operations
BUSY_RETRY_S = 0.15
LARGE_BYTES = 1_000_000  # Dask updates its bandwidth estimate from larger transfers only


class LightWorker(BaseWorker):
    """A worker of a simulated cluster. ``peers`` is shared by all light workers: each one by its address."""

    def __init__(
        self, fabric: Fabric, name: str, threads: int, executor: SimExecutor, peers: dict[str, LightWorker]
    ) -> None:
        self._fabric, self._process, self.name = fabric, fabric.current_process(), name
        self._executor, self._peers = executor, peers
        self._listener = Listener(fabric, name, self._serve_scheduler, deserialize=True)
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
        self._channels: dict[str, Channel] = {}
        self.transfer_outgoing_bytes_total = 0
        self.bandwidth = 1.0 * parse_bytes(dask.config.get("distributed.scheduler.bandwidth"))
        self.bandwidth_workers: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        peers[self.address] = self

    # --- scheduler -----------------------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> LightWorker:
        """Register with Dask's Scheduler. Its object is needed because heartbeats call it directly."""
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
        empty: dict[str, Any] = {key: {} for key in ("resources", "services", "versions", "extra")}
        return empty | {
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
            loop = self._fabric.processes_by_name["scheduler"].loop
            on_arrival = partial(loop.call_soon, self._handle_heartbeat, time(), self._metrics())
            self._send("scheduler", HEARTBEAT_BYTES, on_arrival)
            if self.state.missing_dep_flight:  # a whole Worker asks once a second for data that peers lacked
                self.handle_stimulus(FindMissingEvent(stimulus_id=f"find-missing-{time()}"))

    def _handle_heartbeat(self, now: float, metrics: dict[str, Any]) -> None:
        """In the scheduler's process: read the heartbeat and answer it."""
        self._fabric.charge(self._fabric.processes_by_name["scheduler"], HEARTBEAT, HEARTBEAT_BYTES)
        self._scheduler.heartbeat_worker(address=self.address, now=now, metrics=metrics)

    def batched_send(self, msg: dict[str, Any]) -> None:
        """Send a message to the scheduler with the next batch."""
        self._stream.send(msg)

    async def _serve_scheduler(self, comm: Any) -> None:
        """Answer the scheduler's requests for results that the client needs."""
        while True:
            try:
                request = await comm.read()
                results = {key: to_serialize(self.state.data[key]) for key in request["keys"]}
                await comm.write({"status": "OK", "data": results})
                await comm.read()
            except CommClosedError:
                return

    # --- other workers -------------------------------------------------------------------------------------

    def _send(self, machine: str, nbytes: int, deliver: Any) -> None:
        """Send a message of an estimated size that is not really packed."""
        if machine not in self._channels:
            self._channels[machine] = Channel(self._fabric.network, self.name, machine)
        self._channels[machine].send(self._charge(nbytes), nbytes, deliver, self._process.pace)

    def _charge(self, nbytes: int) -> float:
        return self._fabric.charge(self._process, None, nbytes)

    async def gather_dep(
        self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str
    ) -> StateMachineEvent:
        """Request data from a peer and wait for it."""
        peer, start = self._peers[worker], time()
        answered = self._process.loop.create_future()
        keys = list(to_gather)

        def on_arrival() -> None:
            peer._process.loop.call_soon(peer._serve, self, keys, answered)

        self._send(peer.name, REQUEST_BYTES + KEY_BYTES * len(keys), on_arrival)
        data = await answered
        stimulus = f"gather-dep-{time()}"
        if data is None:
            return GatherDepBusyEvent(worker=worker, total_nbytes=total_nbytes, stimulus_id=stimulus)
        nbytes = sum(value.nbytes_ for value in data.values())
        self._charge(nbytes)
        self._send(peer.name, ANSWER_BYTES, lambda: peer._process.loop.call_soon(peer._acknowledged))
        self._update_bandwidth(worker, nbytes, time() - start)
        return GatherDepSuccessEvent(
            worker=worker, total_nbytes=total_nbytes, data=data, stimulus_id=stimulus
        )

    def _serve(self, peer: LightWorker, keys: list[Any], answered: asyncio.Future[Any]) -> None:
        """Answer a peer's request: with the data, or with None if too many answers are under way."""
        self._charge(REQUEST_BYTES)
        data = None
        nbytes = ANSWER_BYTES
        if self._outgoing < self._outgoing_limit:
            self._outgoing += 1
            results: Any = self.state.data
            data = {key: results[key] for key in keys if key in results}
            size = sum(value.nbytes_ for value in data.values())
            self.transfer_outgoing_bytes_total += size
            nbytes = REQUEST_BYTES + KEY_BYTES * len(data) + size

        def on_arrival() -> None:
            peer._process.loop.call_soon(resolve, answered, data)

        self._send(peer.name, nbytes, on_arrival)

    def _acknowledged(self) -> None:
        self._charge(ANSWER_BYTES)
        self._outgoing -= 1

    def _update_bandwidth(self, worker: str, nbytes: int, seconds: float) -> None:
        """Update the bandwidth estimate, with the weights of ``distributed.Worker``."""
        if nbytes > LARGE_BYTES:
            bandwidth = nbytes / max(0.001, seconds)
            self.bandwidth = self.bandwidth * 0.95 + bandwidth * 0.05
            total, count = self.bandwidth_workers[worker]
            self.bandwidth_workers[worker] = (total + bandwidth, count + 1)

    # --- own tasks -----------------------------------------------------------------------------------------

    async def execute(self, key: Any, *, stimulus_id: str) -> StateMachineEvent:
        """Simulate a task and wait until it ends."""
        state = self.state.tasks[key]
        run_id, spec = state.run_id, state.run_spec
        data = {needed.key: self.state.data[needed.key] for needed in state.dependencies}
        state.start_time = time()
        message = await self._executor.simulate(self._process.loop, None, spec, data, 0.0)
        return ExecuteSuccessEvent(
            key=key,
            run_id=run_id,
            value=message["result"],
            start=message["start"],
            stop=message["stop"],
            nbytes=message["nbytes"],
            type=message["type"],
            stimulus_id=f"task-finished-{time()}",
        )

    async def retry_busy_worker_later(self, worker: str) -> StateMachineEvent:
        """Wait before a busy peer is asked again."""
        await asyncio.sleep(BUSY_RETRY_S)
        return RetryBusyWorkerEvent(worker=worker, stimulus_id=f"retry-busy-worker-{time()}")

    def digest_metric(self, name: Hashable, value: float) -> None:
        """Discard the metric: heartbeats carry none."""
