"""Zero workers answer each task at once without computing it: what is left is what the scheduler costs.

    dasklab_zero.py tcp://10.0.0.2:8786 --host 10.0.0.3 --name worker-1 --workers 8 --threads 1

All in one process, as each needs no more than a stream to the scheduler and an address of its own. They speak
the protocol of the Dask that is installed, through its own comms. Who asks for data is given a placeholder;
they tell nothing of their health, so the scheduler has to be told not to wait for that (``worker-ttl``).
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
    """One worker. What the lab's workloads ask of a worker it has too, as far as it makes sense."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.state = SimpleNamespace(nthreads=threads)
        self.transfer_outgoing_bytes_total = 0

    async def work(self, scheduler: str, host: str) -> None:
        """Take part in a cluster until it ends."""
        async with listen(f"tcp://{host}:0", self.serve) as listener:
            comm = await connect(scheduler)
            await comm.write(self.about(listener.contact_address), serializers=["msgpack"])
            answer = await comm.read()
            if answer["status"] != "OK":
                raise SystemExit(f"{self.name}: {answer}")
            with contextlib.suppress(CommClosedError):
                while True:
                    asked = await comm.read()
                    if said := [told for message in asked if (told := reply(message))]:
                        await comm.write(said)

    def about(self, address: str) -> dict[str, Any]:
        """How a worker introduces itself."""
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
        """Answer whoever connects: data is asked for by peers and client, ``run`` by the workloads."""
        with contextlib.suppress(CommClosedError):
            while True:
                asked = await comm.read()
                if asked == "OK":  # thanks for data
                    continue
                operation, close = asked["op"], asked.pop("close", False)
                if operation == "get_data":
                    data = {key: to_serialize(PLACEHOLDER) for key in asked["keys"]}
                    await comm.write({"status": "OK", "data": data})
                elif operation == "run":
                    words = {name: asked[name] for name in ("function", "args", "kwargs") if name in asked}
                    await comm.write(await run(self, comm, **words))
                else:
                    await comm.write({"status": "OK"})
                if close:
                    await comm.close()


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """What is said to a message of the scheduler; most need no answer."""
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
        told = {name: message[name] for name in ("key", "stimulus_id")}
        return {"op": "steal-response", "state": "memory", **told}
    return None


async def main() -> None:
    """All workers of this process, until the scheduler is gone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scheduler")
    parser.add_argument("--host", required=True, help="address that they listen on")
    parser.add_argument("--name", required=True, help="of one; of several the first part")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="that each says it has; 0: one per core")
    args = parser.parse_args()
    numbers = range(1, args.workers + 1)
    names = [args.name] if args.workers == 1 else [f"{args.name}-{number}" for number in numbers]
    workers = [Zero(name, args.threads or os.cpu_count() or 1) for name in names]
    await asyncio.gather(*(worker.work(args.scheduler, args.host) for worker in workers))


if __name__ == "__main__":
    asyncio.run(main())
