"""Whose tasks had the threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.repeat import INSIDE_TASKS, Extent, Repeat

UNKNOWN = ""
"""Instead of a client's id: tasks that were there before the recording, and that no client waits for."""


@dataclass(frozen=True)
class ClientShare:
    """What the tasks of a client had of the threads.

    Attributes:
        client: its id, or ``UNKNOWN``.
        is_recorded: whether it is the one whose program was recorded.
        seconds: thread time within the repeat.
        tasks: number of computations.
        kind: what most of them compute.
    """

    client: str
    is_recorded: bool
    seconds: float
    tasks: int
    kind: str


def client_shares(repeat: Repeat) -> list[ClientShare]:
    """Return the shares of all clients whose tasks ran, the largest first.

    Clients of tasks belong to whoever sent these: they count as recorded.
    """
    tasks = repeat.tasks
    seconds = np.minimum(tasks.stop, repeat.stop) - np.maximum(tasks.start, repeat.start)
    codes, clients = repeat.task_clients
    recorded = {graph.client for graph in repeat.graphs if graph.is_recorded}
    shares = []
    for code, client in enumerate(clients):
        own = np.flatnonzero(codes == code)
        if not len(own):
            continue
        kinds = Counter(repeat.prefixes[key] for key in tasks.key[own].tolist())
        is_recorded = client in recorded or client.startswith(INSIDE_TASKS)
        total = float(seconds[own].sum())
        shares.append(ClientShare(client, is_recorded, total, len(own), kinds.most_common(1)[0][0]))
    return sorted(shares, key=lambda share: -share.seconds)


def foreign_shares(repeat: Repeat) -> list[ClientShare]:
    """Return the shares of clients other than the recorded one; none where no program was recorded."""
    if repeat.extent is Extent.WATCHED or not any(graph.is_recorded for graph in repeat.graphs):
        return []
    return [share for share in client_shares(repeat) if not share.is_recorded]
