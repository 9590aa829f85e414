"""What the client does: its own code, graphs, data that it sends and fetches."""

from __future__ import annotations

import random
import time

import dask.array as da
from distributed import Client, LocalCluster

from .situation import array, situation, spin, spread, vary


@situation("client code")
def code_between_computes(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client sleeps after each of four computations."""
    for _ in range(4):
        client.gather(spread(client, spin, [0.02] * 4))
        time.sleep(vary(chance, 0.4))


@situation("client code")
def pauses_of_a_notebook(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A person reads between three short computations."""
    for _ in range(3):
        client.submit(spin, 0.2, pure=False).result()
        time.sleep(vary(chance, 0.8))


@situation("graphs")
def large_graph(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A rechunk of many small chunks is built and sent."""

    client.compute(da.ones((30_000, 30_000), chunks=(300, 300)).sum()).cancel()
    x = da.random.random((8000, 8000), chunks=(80, 8000))
    client.persist(x.rechunk((8000, 80)).map_blocks(lambda block: block[:1])).compute()


@situation("graphs")
def large_arguments(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Each call takes some 32 MB as an argument."""
    data = bytes(int(vary(chance, 32_000_000)))
    for number in range(6):
        client.submit(len, data + bytes([number]), pure=False).result()


@situation("client data")
def scatter_to_all(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client sends some 96 MB to all workers."""
    data = client.scatter(bytes(int(vary(chance, 96_000_000))), broadcast=True)
    client.submit(len, data, pure=False).result()


@situation("client data")
def scatter_many(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client scatters more than a thousand numbers one by one."""
    data = client.scatter(list(range(int(vary(chance, 1500)))), hash=False)
    client.submit(sum, data, pure=False).result()


@situation("client data")
def gather_much(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Results of some 256 MB move to the client."""
    client.gather(spread(client, array, [vary(chance, 16)] * 16))
