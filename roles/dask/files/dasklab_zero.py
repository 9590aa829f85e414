"""Zero workers: they report each task as finished without computing it. What remains is the scheduler's cost.

    dasklab_zero.py tcp://10.0.0.2:8786 --host 10.0.0.3 --name worker-1 --workers 8 --threads 1

All workers share one process, because each needs only a stream to the scheduler and an address. They use the
comms of the installed Dask. A request for data gets a placeholder. They send no heartbeats, so the scheduler
must not expect any (``worker-ttl: null``).
"""

# mypy: disable-error-code="no-untyped-call,attr-defined"
from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pickle
import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from distributed.comm import connect, listen
from distributed.comm.core import CommClosedError
from distributed.protocol import to_serialize
from distributed.worker import run

PLACEHOLDER = 0.0
TYPE = {"type": pickle.dumps(float), "typename": "float", "nbytes": 24}
METRICS = {
    "bandwidth": {"total": 100_000_000, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "managed_bytes": 0,
    "memory": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": {},
    "event_loop_interval": 0.02,
    "cpu": 0,
    "time": 0.0,
    "task_counts": {},
}


class Zero:
    """One worker, with the attributes that the lab's workloads read of a worker."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.state = SimpleNamespace(nthreads=threads)
        self.transfer_outgoing_bytes_total = 0

    async def work(self, scheduler: str, host: str) -> None:
        """Serve a cluster until it ends."""
        async with listen(f"tcp://{host}:0", self.serve) as listener:
            comm = await connect(scheduler)
            await comm.write(self.registration(listener.contact_address), serializers=["msgpack"])
            answer = await comm.read()
            if answer["status"] != "OK":
                raise SystemExit(f"{self.name}: {answer}")
            with contextlib.suppress(CommClosedError):
                while True:
                    messages = await comm.read()
                    if replies := [answer for message in messages if (answer := reply(message))]:
                        await comm.write(replies)

    def registration(self, address: str) -> dict[str, Any]:
        """Return the message with which a worker registers."""
        return {
            "op": "register-worker",
            "reply": False,
            "address": address,
            "status": "running",
            "nthreads": self.state.nthreads,
            "name": self.name,
            "now": time.time(),
            "resources": {},
            "memory_limit": None,
            "local_directory": "",
            "services": {},
            "nanny": None,
            "pid": os.getpid(),
            "versions": {},
            "metrics": METRICS,
            "extra": {},
            "stimulus_id": f"worker-connect-{time.time()}",
            "server_id": f"Worker-{uuid4()}",
        }

    async def serve(self, comm: Any) -> None:
        """Answer one connection. Peers and clients request data, workloads call ``run``."""
        with contextlib.suppress(CommClosedError):
            while True:
                request = await comm.read()
                if request == "OK":  # the acknowledgement of data
                    continue
                operation, close = request["op"], request.pop("close", False)
                if operation == "get_data":
                    data = {key: to_serialize(PLACEHOLDER) for key in request["keys"]}
                    await comm.write({"status": "OK", "data": data})
                elif operation == "run":
                    names = ("function", "args", "kwargs")
                    arguments = {name: request[name] for name in names if name in request}
                    await comm.write(await run(self, comm, **arguments))
                else:
                    await comm.write({"status": "OK"})
                if close:
                    await comm.close()


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to a message of the scheduler, or None if it needs none."""
    if message["op"] == "compute-task":
        now = time.time()
        return {
            "op": "task-finished",
            "status": "OK",
            "key": message["key"],
            "run_id": message["run_id"],
            "stimulus_id": f"task-finished-{now}",
            "thread": threading.get_ident(),
            "startstops": ({"action": "compute", "start": now, "stop": now + 1e-6},),
            "metadata": {},
            **TYPE,
        }
    if message["op"] == "steal-request":
        return {
            "op": "steal-response",
            "state": "memory",
            "key": message["key"],
            "stimulus_id": message["stimulus_id"],
        }
    return None


async def main() -> None:
    """Run all workers of this process until the scheduler ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scheduler")
    parser.add_argument("--host", required=True, help="address to listen on")
    parser.add_argument("--name", required=True, help="of one worker; several get a number as well")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="that each reports; 0: one per core")
    args = parser.parse_args()
    numbers = range(1, args.workers + 1)
    names = [args.name] if args.workers == 1 else [f"{args.name}-{number}" for number in numbers]
    workers = [Zero(name, args.threads or os.cpu_count() or 1) for name in names]
    await asyncio.gather(*(worker.work(args.scheduler, args.host) for worker in workers))


if __name__ == "__main__":
    asyncio.run(main())
