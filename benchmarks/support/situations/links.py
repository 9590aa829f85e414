"""A client behind a slow link. The scheduler and its workers are near each other."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from distributed import Client, LocalCluster

from .situation import CLIENT, SCHEDULER, array, situation, spread, vary

LINK_MBIT = 16
RELAY = Path(__file__).with_name("relay.py")


@contextlib.contextmanager
def from_afar(cluster: LocalCluster) -> Iterator[Client]:
    """Open a client whose link to the scheduler is slow."""
    port = cluster.scheduler_address.rpartition(":")[2]
    argv = [sys.executable, str(RELAY), port, str(LINK_MBIT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as relay:
        try:
            relay_port = relay.stdout.readline().strip() if relay.stdout else ""
            with Client(f"tcp://127.0.0.1:{relay_port}") as client:
                yield client
        finally:
            relay.kill()


@situation("client data", "link", place=(CLIENT, SCHEDULER), connect=from_afar)
def gather_over_a_slow_link(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Results of 6 MB move to a client that is connected with 16 Mbit/s, which takes 3 s.

    Computing them takes almost no time. (https://github.com/LiberTEM/LiberTEM/issues/602)
    """
    client.gather(spread(client, array, [vary(chance, 1.0)] * 6))


@situation("client data", "link", place=(CLIENT, SCHEDULER), connect=from_afar)
def scatter_over_a_slow_link(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A client that is connected with 16 Mbit/s scatters 6 MB, which takes 3 s.

    The tasks that need them are short. (https://github.com/LiberTEM/LiberTEM/issues/602)
    """
    parts = [array(vary(chance, 1.0)) for _ in range(6)]
    client.gather(spread(client, len, client.scatter(parts, hash=False)))


@situation("graphs", "link", place=(CLIENT, SCHEDULER), connect=from_afar)
def arguments_over_a_slow_link(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A client that is connected with 16 Mbit/s passes 6 MB as arguments of its calls.

    So they are part of the graphs. (https://github.com/LiberTEM/LiberTEM/issues/602)
    """
    parts = [array(vary(chance, 1.0)) for _ in range(6)]
    client.gather([client.submit(len, part, pure=False) for part in parts])
