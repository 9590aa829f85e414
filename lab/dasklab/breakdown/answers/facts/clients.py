"""Whose tasks had the threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.repeat import Extent, Repeat

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
    shares = []
    for code, client in enumerate(clients):
        own = np.flatnonzero(codes == code)
        if not len(own):
            continue
        kinds = Counter(repeat.prefixes[key] for key in tasks.key[own].tolist())
        total, kind = float(seconds[own].sum()), kinds.most_common(1)[0][0]
        shares.append(ClientShare(client, repeat.is_own(client), total, len(own), kind))
    return sorted(shares, key=lambda share: -share.seconds)


def foreign_shares(repeat: Repeat) -> list[ClientShare]:
    """Return the shares of clients other than the recorded one; none where no program was recorded."""
    if repeat.extent is Extent.WATCHED or not repeat.recorded_clients:
        return []
    return [share for share in client_shares(repeat) if not share.is_recorded]
