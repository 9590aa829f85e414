"""One Dask node of a capture cluster that counts, from the inside, all that it says.

Runs under any distributed from 2.8.0 to today, hence the plain Python and the few fall-backs. Every message
that ``TCP.write`` finished is counted by op; the counts are the truth that the decoder must reproduce from
packets alone. Started by wire_cluster.py: wire_node.py scheduler|worker|client ADDRESS OUT.json [WORKLOAD]
"""

import asyncio
import collections
import json
import os
import pathlib
import signal
import sys

import distributed
from distributed import Client, Scheduler, Worker
from distributed.comm import tcp

COUNTS = {"messages": 0, "ops": collections.Counter(), "without_op": 0, "batched": {}}


def to_itself(comm):
    """A node that talks to itself does so over its loopback, which no capture on a network sees."""
    return isinstance(comm, tcp.TCP) and address_of(comm.local_address) == address_of(comm.peer_address)


def address_of(uri):
    """``10.0.0.1`` of ``tcp://10.0.0.1:8786``."""
    return uri.split("://")[-1].rsplit(":", 1)[0]


def count_message(message):
    """Count one written message: a dict is one op or a reply, a list or tuple is a batch of ops."""
    COUNTS["messages"] += 1
    if isinstance(message, dict) and "op" in message:
        COUNTS["ops"][message["op"]] += 1
    elif isinstance(message, (list, tuple)) and message and isinstance(message[0], dict):
        for item in message:
            COUNTS["ops"][item.get("op", "")] += 1
    else:
        COUNTS["without_op"] += 1


def watch_writes():
    """Wrap the write of TCP comms, and of WebSocket comms where this version has them."""
    count_writes(tcp.TCP)
    try:
        from distributed.comm import ws
    except ImportError:
        return
    for name in ("WS", "WSHandlerComm"):
        if hasattr(ws, name):
            count_writes(getattr(ws, name))


def count_writes(comm):
    """Wrap ``comm.write`` so that each message is counted once it was handed to the kernel."""
    write = comm.write

    async def counted(self, msg, *args, **kwargs):
        kept = list(msg) if isinstance(msg, list) else msg
        result = await write(self, msg, *args, **kwargs)
        if not to_itself(self):
            count_message(kept)
        return result

    comm.write = counted


def batched_counters(streams):
    """Dask's own counters of its batched streams: messages (= ops), batches."""
    return {str(k): [s.message_count, s.batch_count] for k, s in streams.items()}


async def until_told(path, streams):
    """Wait for SIGTERM, then write the counts and leave at once (no farewell messages)."""
    stop = asyncio.Event()
    asyncio.get_event_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    COUNTS["batched"] = batched_counters(streams())
    save(path)
    os._exit(0)


def save(path):
    """Write the counts."""
    COUNTS["versions"] = {"distributed": distributed.__version__, "python": sys.version.split()[0]}
    pathlib.Path(path).write_text(json.dumps(COUNTS))


def security():
    """TLS when the cluster was asked for it."""
    folder = os.environ.get("WIRE_TLS")
    if not folder:
        return {}
    from distributed.security import Security

    cert, key = folder + "/cert.pem", folder + "/key.pem"
    names = {
        f"tls_{who}_{what}": value
        for who in ("scheduler", "worker", "client")
        for what, value in (("cert", cert), ("key", key))
    }
    return {"security": Security(tls_ca_file=cert, require_encryption=True, **names)}


async def scheduler(address, path):
    """A scheduler on ADDRESS."""
    protocol = address.split("://")[0] + "://"
    port = int(address.rsplit(":", 1)[1])
    host = address.split("://")[1].rsplit(":", 1)[0]
    async with Scheduler(
        host=host, port=port, protocol=protocol, dashboard_address=None, **security()
    ) as node:
        await until_told(path, lambda: node.stream_comms)


async def worker(address, path):
    """A worker of WIRE_THREADS threads that listens on WIRE_HOST."""
    options = {
        "nthreads": int(os.environ["WIRE_THREADS"]), "host": os.environ["WIRE_HOST"], "memory_limit": 0,
        "name": os.environ.get("WIRE_NAME"), "protocol": address.split("://")[0] + "://", **security(),
    }  # fmt: skip
    async with Worker(address, **options) as node:
        await until_told(path, lambda: {"scheduler": node.batched_stream})


def array_work(client, size, chunk):
    """The study's computation (Dask array), its answer about 16."""
    import dask.array as da

    w, x, y, z = (da.random.random((size, size), chunks=(chunk, chunk)) for _ in range(4))
    total = ((w + w.T) * (x + x.T) * (y + y.T) * (z + z.T)).sum() / (w * x * y * z).sum()
    return float(total.compute())


def many_tasks(client, count):
    """Control traffic: many tiny tasks."""
    return sum(client.gather(client.map(lambda i: i + 1, range(count), pure=False)))


def part_of_frame(number, rows):
    """A partition that a worker makes by itself: nothing of it comes from the client."""
    import numpy as np
    import pandas as pd

    chance = np.random.default_rng(number)
    columns = {"a": chance.integers(0, 1 << 20, rows), "b": chance.random(rows), "c": chance.random(rows)}
    return pd.DataFrame(columns)


def frame_of(rows):
    """A data frame of so many rows in 24 partitions."""
    import dask.dataframe as dd

    return dd.from_map(part_of_frame, range(24), rows=rows // 24)


def shuffle(client, rows):
    """P2P shuffle of a data frame: payload travels inside requests."""
    import dask

    dask.config.set({"dataframe.shuffle.method": "p2p"})
    return float(frame_of(rows).shuffle("a").b.sum().compute())


def groupby(client, rows):
    """A function of each group, so that its rows must come together: a shuffle by tasks."""
    import dask

    dask.config.set({"dataframe.shuffle.method": "tasks"})
    return float(frame_of(rows).groupby("a").agg("median").b.sum().compute())


def submit(client, name, args):
    """Run one workload by its name."""
    work = {"array": array_work, "tasks": many_tasks, "shuffle": shuffle, "groupby": groupby}[name]
    return work(client, *[int(a) for a in args])


def run_client(address, path, workload):
    """Wait for all workers, run the workload, write the counts and the answer."""
    import time

    client = Client(address, **security())
    client.wait_for_workers(int(os.environ["WIRE_WORKERS"]))
    time.sleep(1.2)
    name, *args = workload.split(":")
    COUNTS["answer"] = submit(client, name, args)
    time.sleep(0.7)
    save(path)
    os._exit(0)


def main():
    """Dispatch on the role."""
    role, address, path = sys.argv[1:4]
    watch_writes()
    if role == "client":
        run_client(address, path, sys.argv[4])
    asyncio.get_event_loop().run_until_complete(
        {"scheduler": scheduler, "worker": worker}[role](address, path)
    )


if __name__ == "__main__":
    main()
