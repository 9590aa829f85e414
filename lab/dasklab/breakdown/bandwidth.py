"""What Dask believes of the links, beside what they gave. Pure.

Dask plans with one bandwidth for all pairs, a mean of the last transfers of more than 1 MB at any worker; its
table by pair is for show (`Scheduler.get_comm_cost`). So one slow link is
nothing that placement sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from dasklab.breakdown.run import Run
from dasklab.model.files import Throughput
from dasklab.model.nic import BYTES_PER_MBIT

# Bytes of a fetch that tells of a bandwidth; a smaller one tells of latencies, and Dask does not count it.
COUNTED = 1e6


@dataclass(frozen=True)
class Belief:
    """A pair of workers; all in bytes per second, None where nobody said or nothing was moved."""

    receiver: str
    sender: str
    planned: float
    table: float | None
    fetched: float | None
    probed: float | None

    @property
    def found(self) -> float | None:
        """What the pair gave: to Dask's own fetches, else to the probe."""
        return self.fetched or self.probed


def beliefs(recorded: pd.DataFrame, runs: Sequence[Run], probes: Sequence[Throughput]) -> list[Belief]:
    """Each pair that fetched, was probed or is in Dask's table, after the last of the ``runs``.

    ``recorded`` has the rows of the table `beliefs`; fetches of as much as Dask counts are summed over the
    runs: bytes as Dask estimates sizes, seconds from the question until all was there.
    """
    last = recorded[recorded.run == max((run.number for run in runs), default=-1)]
    rows = zip(last.receiver, last.sender, last.bytes_per_s, strict=True)
    told = {(str(receiver), str(sender)): float(rate) for receiver, sender, rate in rows}
    planned = told.pop(("", ""), None)
    if planned is None:
        return []
    fetched, probed = _fetched(runs), _probed(probes)
    workers = {worker for run in runs for worker in run.threads}
    pairs = sorted(pair for pair in {*told, *fetched, *probed} if set(pair) <= workers)
    return [Belief(*pair, planned, told.get(pair), fetched.get(pair), probed.get(pair)) for pair in pairs]


def _fetched(runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    moved: defaultdict[tuple[str, str], float] = defaultdict(float)
    took: defaultdict[tuple[str, str], float] = defaultdict(float)
    for run in runs:
        sizes = {need.key: need.nbytes for task in run.tasks for need in task.needs}
        for fetch in run.fetches:
            pair, size = (fetch.receiver, fetch.sender), sum(sizes.get(key, 0.0) for key in fetch.keys)
            if not fetch.busy and size > COUNTED:
                moved[pair] += size
                took[pair] += fetch.stop - fetch.start
    return {pair: size / took[pair] for pair, size in moved.items() if took[pair] > 0}


def _probed(probes: Sequence[Throughput]) -> dict[tuple[str, str], float]:
    """The mean of a pair's TCP probes; data flows from ``src`` to ``dst``."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for probe in probes:
        if probe.proto == "tcp":
            found[probe.dst, probe.src].append(probe.mbit * BYTES_PER_MBIT)
    return {pair: sum(rates) / len(rates) for pair, rates in found.items()}
