"""Memory that is there, used up or never used, and threads that another client has."""

from __future__ import annotations

import random
import time

from distributed import Client, LocalCluster, wait

from .situation import array, rest, situation, spread, vary


@situation(
    "outside",
    memory_limit="4GB",
    wrong_advice=("spilling", "paused workers", "unmanaged memory", "queuing is off"),
)
def memory_that_nobody_used(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Workers have 4 GB each, their tasks keep numbers.

    To be said, if anything: that memory was never used. Wrong: any blame of memory.
    """
    client.gather(spread(client, rest, [vary(chance, 0.15)] * 20))


@situation("disk", "memory", memory_limit="400MB", advice=("spilling",))
def passes_over_spilled_results(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Three computations in a row read all results, of which the workers can keep half in memory.

    Each pass reads what the one before has pushed out, and computes nothing. To be said: how much was
    spilled. Right advice: smaller chunks, more workers or more memory.
    """
    parts = spread(client, array, [40] * int(vary(chance, 14)))
    wait(parts)
    for _ in range(3):
        client.gather(spread(client, lambda part: float(part[0]), parts))


@situation("outside")
def another_client_comes_later(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Another client submits when all of one's own tasks were submitted, so it delays none of them.

    Wrong: that the other client held up the work.
    """
    with Client(cluster.scheduler_address, set_as_default=False) as other:
        mine = spread(client, rest, [vary(chance, 0.1)] * 24)
        theirs = spread(other, rest, [0.1] * 12)
        client.gather(mine)
        other.cancel(theirs)


@situation("client code")
def another_client_uses_the_pause(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """While the recorded client's program does something else, another client computes.

    To be said: the line that sleeps. Wrong: that one waited for the other client.
    """
    with Client(cluster.scheduler_address, set_as_default=False) as other:
        client.gather(spread(client, rest, [0.1] * 4))
        theirs = spread(other, rest, [0.1] * 10)
        time.sleep(vary(chance, 2.0))
        wait(theirs)
        client.gather(spread(client, rest, [0.1] * 4))
