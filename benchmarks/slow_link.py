"""Clusters on this machine of which one link is slow: connections go through a relay that limits their rate.

No root and no network namespace is needed. A relay limits both directions, of all connections together.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from distributed import LocalCluster

PIECE_BYTES = 16_384
WAIT_S = 60


class Relay:
    """Listens on a port of this machine and passes bytes on, at a limited rate and after a delay."""

    def __init__(self, target: int, mbit: float, delay_s: float = 0.0) -> None:
        self.target, self.bytes_per_s, self.delay_s = target, mbit * 125_000, delay_s
        self.free = [0.0, 0.0]  # until when each direction is busy
        self.lock = threading.Lock()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self.server.accept()
            except OSError:  # closed
                return
            outside = socket.create_connection(("127.0.0.1", self.target))
            for direction, ends in enumerate(((inside, outside), (outside, inside))):
                threading.Thread(target=self._pass_on, args=(direction, *ends), daemon=True).start()

    def _pass_on(self, direction: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                with self.lock:
                    start = max(time.monotonic(), self.free[direction])
                    self.free[direction] = start + len(piece) / self.bytes_per_s
                time.sleep(max(0.0, self.free[direction] + self.delay_s - time.monotonic()))
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.server.close()


@contextlib.contextmanager
def cluster(
    scheduler_mbit: float | None = None,
    worker_mbit: float | None = None,
    delay_s: float = 0.0,
    n_workers: int = 2,
    **options: object,
) -> Iterator[tuple[LocalCluster, str]]:
    """Run a cluster whose scheduler's link, or that of the last worker, is slow; yield it and its address."""
    with LocalCluster(n_workers=0, **options) as local, contextlib.ExitStack() as stack:
        port = int(local.scheduler_address.rpartition(":")[2])
        if scheduler_mbit:
            relay = Relay(port, scheduler_mbit, delay_s)
            stack.callback(relay.close)
            port = relay.port
        address = f"tcp://127.0.0.1:{port}"
        for number in range(n_workers):
            mbit = worker_mbit if number == n_workers - 1 else None
            stack.enter_context(_worker(address, number, mbit, delay_s))
        deadline = time.monotonic() + WAIT_S
        while len(local.scheduler.workers) < n_workers:
            if time.monotonic() > deadline:
                raise TimeoutError("the workers did not connect")
            time.sleep(0.1)
        yield local, address


@contextlib.contextmanager
def _worker(scheduler: str, number: int, mbit: float | None, delay_s: float) -> Iterator[None]:
    argv = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--no-nanny", "--no-dashboard"]
    argv += ["--name", str(number), "--nthreads", "1"]
    relay = None
    if mbit:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        relay = Relay(port, mbit, delay_s)
        addresses = ["--listen-address", f"tcp://127.0.0.1:{port}"]
        argv += [*addresses, "--contact-address", f"tcp://127.0.0.1:{relay.port}"]
    else:
        argv += ["--host", "127.0.0.1"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        if relay:
            relay.close()
