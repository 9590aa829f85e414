"""A Dask node that counts all messages it sends.

It runs with any version of distributed since 2.8.0, hence the plain Python and the fallbacks. Every message
that ``TCP.write`` finished is counted by op; the decoder must reproduce these counts from packets alone.
Started by wire_cluster.py: wire_node.py scheduler|worker|client ADDRESS OUT.json [WORKLOAD]
"""

import asyncio
import collections
import json
import os
import pathlib
import random
import signal
import sys

import distributed
from distributed import Client, Scheduler, Worker
from distributed.comm import tcp

COUNTS = {"messages": 0, "ops": collections.Counter(), "without_op": 0, "batched": {}}


def to_itself(comm):
    """Return whether a node sends to itself, over the loopback, which a network capture does not contain."""
    return isinstance(comm, tcp.TCP) and address_of(comm.local_address) == address_of(comm.peer_address)


def address_of(uri):
    return uri.split("://")[-1].rsplit(":", 1)[0]


def count_message(message):
    """Count a message: a dict is an op or a reply, a list or tuple is a batch of ops."""
    COUNTS["messages"] += 1
    if isinstance(message, dict) and "op" in message:
        COUNTS["ops"][message["op"]] += 1
    elif isinstance(message, (list, tuple)) and message and isinstance(message[0], dict):
        for item in message:
            COUNTS["ops"][item.get("op", "")] += 1
    else:
        COUNTS["without_op"] += 1


def watch_writes():
    """Wrap the write method of TCP comms, and of WebSocket comms in versions that have them."""
    count_writes(tcp.TCP)
    try:
        from distributed.comm import ws
    except ImportError:
        return
    for name in ("WS", "WSHandlerComm"):
        if hasattr(ws, name):
            count_writes(getattr(ws, name))


def count_writes(comm):
    """Wrap ``comm.write`` to count each message after it was passed to the kernel."""
    write = comm.write

    async def counted(self, msg, *args, **kwargs):
        content = list(msg) if isinstance(msg, list) else msg
        result = await write(self, msg, *args, **kwargs)
        if not to_itself(self):
            count_message(content)
        return result

    comm.write = counted


def batched_counters(streams):
    """Return the counters of Dask's batched streams: messages (= ops) and batches."""
    return {str(k): [s.message_count, s.batch_count] for k, s in streams.items()}


async def run_until_sigterm(path, streams):
    """Wait for SIGTERM, then write the counts and exit at once, without closing messages."""
    stop = asyncio.Event()
    asyncio.get_event_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    COUNTS["batched"] = batched_counters(streams())
    save(path)
    os._exit(0)


def save(path):
    COUNTS["versions"] = {"distributed": distributed.__version__, "python": sys.version.split()[0]}
    pathlib.Path(path).write_text(json.dumps(COUNTS))


def security():
    """Return the TLS options if the cluster uses TLS."""
    folder = os.environ.get("WIRE_TLS")
    if not folder:
        return {}
    from distributed.security import Security

    cert, key = folder + "/cert.pem", folder + "/key.pem"
    names = {
        f"tls_{role}_{kind}": value
        for role in ("scheduler", "worker", "client")
        for kind, value in (("cert", cert), ("key", key))
    }
    return {"security": Security(tls_ca_file=cert, require_encryption=True, **names)}


async def scheduler(address, path):
    protocol = address.split("://")[0] + "://"
    port = int(address.rsplit(":", 1)[1])
    host = address.split("://")[1].rsplit(":", 1)[0]
    async with Scheduler(
        host=host, port=port, protocol=protocol, dashboard_address=None, **security()
    ) as node:
        await run_until_sigterm(path, lambda: node.stream_comms)


def write_in_parts(share):
    """Make a share of the messages two small writes with Nagle's algorithm, as a careless program does."""
    connect = tcp.TCP.__init__

    def init(self, stream, *args, **kwargs):
        connect(self, stream, *args, **kwargs)
        stream.set_nodelay(False)
        write = stream.write

        def in_parts(data):
            data = bytes(data)
            if 64 < len(data) < 1400 and random.random() < share:
                write(data[:32])
                data = data[32:]
            return write(data)

        stream.write = in_parts

    tcp.TCP.__init__ = init


async def worker(address, path):
    """Run a worker with WIRE_THREADS threads that listens on WIRE_HOST."""
    options = {
        "nthreads": int(os.environ["WIRE_THREADS"]), "host": os.environ["WIRE_HOST"], "memory_limit": 0,
        "name": os.environ.get("WIRE_NAME"), "protocol": address.split("://")[0] + "://", **security(),
    }  # fmt: skip
    if os.environ.get("WIRE_CONTACT"):
        options["contact_address"] = os.environ["WIRE_CONTACT"]
    async with Worker(address, **options) as node:
        if os.environ.get("WIRE_HEARTBEAT"):
            delay_heartbeats(node, float(os.environ["WIRE_HEARTBEAT"]))
        await run_until_sigterm(path, lambda: {"scheduler": node.batched_stream})


def delay_heartbeats(node, factor):
    """Send a worker's heartbeats later than the scheduler requests."""
    heartbeat = node.heartbeat

    async def late():
        await heartbeat()
        node.periodic_callbacks["heartbeat"].callback_time = 500 * factor

    node.periodic_callbacks["heartbeat"].callback = late


def array_work(client, size, chunk):
    """Run the study's computation with Dask arrays; the result is about 16."""
    import dask.array as da

    w, x, y, z = (da.random.random((size, size), chunks=(chunk, chunk)) for _ in range(4))
    total = ((w + w.T) * (x + x.T) * (y + y.T) * (z + z.T)).sum() / (w * x * y * z).sum()
    return float(total.compute())


def many_tasks(client, count):
    """Run many tiny tasks: nearly all traffic is control messages."""
    return sum(client.gather(client.map(lambda i: i + 1, range(count), pure=False)))


def part_of_frame(number, rows):
    """Create a partition on a worker, without data from the client."""
    import numpy as np
    import pandas as pd

    chance = np.random.default_rng(number)
    columns = {"a": chance.integers(0, 1 << 20, rows), "b": chance.random(rows), "c": chance.random(rows)}
    return pd.DataFrame(columns)


def frame_of(rows):
    """Build a data frame with this number of rows in 24 partitions."""
    import dask.dataframe as dd

    return dd.from_map(part_of_frame, range(24), rows=rows // 24)


def shuffle(client, rows):
    """Shuffle a data frame with P2P: requests contain the data."""
    import dask

    dask.config.set({"dataframe.shuffle.method": "p2p"})
    return float(frame_of(rows).shuffle("a").b.sum().compute())


def groupby(client, rows):
    """Compute a median per group: a shuffle by tasks."""
    import dask

    dask.config.set({"dataframe.shuffle.method": "tasks"})
    return float(frame_of(rows).groupby("a").agg("median").b.sum().compute())


def mixed(client, seconds):
    """Alternate transfers between workers and small tasks for some time after a first round, with pauses."""
    import threading
    import time

    deadline = [time.time() + seconds + 120]
    threading.Thread(target=exit_at, args=(deadline,), daemon=True).start()
    total = one_round(client)
    pathlib.Path(sys.argv[3]).with_suffix(".running").touch()
    if os.environ.get("WIRE_BLOCK"):
        arguments = (client, *os.environ["WIRE_BLOCK"].split(":"))
        threading.Thread(target=block, args=arguments, daemon=True).start()
    if os.environ.get("WIRE_STANDSTILL"):
        stand_still(client, *os.environ["WIRE_STANDSTILL"].split(":"))
    end = time.time() + seconds
    deadline[0] = end + float(os.environ.get("WIRE_PATIENCE", 3))
    while time.time() < end:
        total += one_round(client)
        if os.environ.get("WIRE_RECONNECT"):
            reconnect(client)
        time.sleep(float(os.environ.get("WIRE_PAUSE", 0.1)))
    return total


def reconnect(client):
    """Ask each worker for its identity over a new connection, as a client with direct access does."""

    async def identity(address):
        remote = distributed.rpc(address)
        try:
            await asyncio.wait_for(remote.identity(), 30)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            await remote.close_rpc()

    for address in client.scheduler_info()["workers"]:
        client.sync(identity, address)


def one_round(client):
    """Transpose an array, which moves half of it between workers, and run 30 small tasks."""
    import dask.array as da

    x = da.random.random((1600, 1600), chunks=(400, 400))
    total = float((x + x.T).sum().compute())
    client.gather(client.map(lambda i: i + 1, range(30), pure=False))
    return total


def exit_at(deadline):
    """End the client at a time, even if its workload hangs."""
    import time

    while time.time() < deadline[0]:
        time.sleep(0.1)
    os._exit(0)


def block(client, node, seconds, times):
    """Block the event loop of the scheduler or a worker some times."""
    import time

    time.sleep(1)
    for _ in range(int(times)):
        if node == "scheduler":
            client.run_on_scheduler(time.sleep, float(seconds))
        else:
            workers = client.scheduler_info()["workers"].items()
            client.run(time.sleep, float(seconds), workers=[a for a, w in workers if w["name"] == node])
        time.sleep(0.7)


def stand_still(client, how, seconds):
    """Give the cluster work that nobody does for some time."""
    import time

    if how == "resource":
        future = client.submit(abs, 1, resources={"of-nobody": 1}, pure=False)
        time.sleep(float(seconds))
        future.release()
    else:
        futures = client.map(lambda _: time.sleep(0.2), range(60), pure=False)
        client.run(pause, float(seconds))
        client.gather(futures)


def pause(seconds, dask_worker):
    """Pause a worker, as it does when its memory is full."""
    from distributed.core import Status

    dask_worker.status = Status.paused
    dask_worker.loop.call_later(seconds, setattr, dask_worker, "status", Status.running)


def submit(client, name, args):
    """Run a workload by its name."""
    work = {
        "array": array_work, "tasks": many_tasks, "shuffle": shuffle, "groupby": groupby, "mixed": mixed,
    }[name]  # fmt: skip
    return work(client, *[int(a) for a in args])


def run_client(address, path, workload):
    """Wait for all workers, run the workload, write the counts and the result."""
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
    role, address, path = sys.argv[1:4]
    watch_writes()
    if os.environ.get("WIRE_NAGLE"):
        write_in_parts(float(os.environ["WIRE_NAGLE"]))
    if role == "client":
        run_client(address, path, sys.argv[4])
    asyncio.get_event_loop().run_until_complete(
        {"scheduler": scheduler, "worker": worker}[role](address, path)
    )


if __name__ == "__main__":
    main()
