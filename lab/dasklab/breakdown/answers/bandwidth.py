"""Dask's bandwidth estimates beside what the links gave.

Dask plans with one bandwidth for all pairs of workers: a mean of the last transfers of more than 1 MB
    anywhere. Its table by pair is for display only (`Scheduler.get_comm_cost`), so placement cannot avoid
    one slow link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.breakdown.model.repeat import Repeat
from dasklab.model.files import Throughput
from dasklab.model.settings.nic import BYTES_PER_MBIT

# The least size of a fetch that says something about bandwidth; a smaller one is dominated by latency, and
# Dask does not use it either.
LEAST_BYTES = 1e6


@dataclass(frozen=True)
class BandwidthEstimate:
    """A pair of workers, in bytes per second; None where nothing is known.

    Attributes:
        planned: what Dask plans with, the same for all pairs.
        by_pair: what Dask's table has for this pair.
        fetched: what Dask's own fetches achieved.
        probed: what iperf3 achieved.
    """

    receiver: str
    sender: str
    planned: float
    by_pair: float | None
    fetched: float | None
    probed: float | None

    @property
    def measured(self) -> float | None:
        """What the pair achieved: in Dask's fetches if there were any, else in probes."""
        return self.fetched or self.probed


def bandwidth_estimates(
    estimates: pd.DataFrame, repeats: Sequence[Repeat], probes: Sequence[Throughput]
) -> list[BandwidthEstimate]:
    """Return the pairs that fetched, were probed or are in Dask's table, after the last of the repeats.

    Args:
        estimates: rows of the table of that name.
    """
    last = estimates[estimates.repeat == max((repeat.number for repeat in repeats), default=-1)]
    rows = zip(last.receiver, last.sender, last.bytes_per_s, strict=True)
    by_pair = {(str(receiver), str(sender)): float(rate) for receiver, sender, rate in rows}
    planned = by_pair.pop(("", ""), None)
    if planned is None:
        return []
    fetched, probed = _fetched(repeats), _probed(probes)
    workers = {worker for repeat in repeats for worker in repeat.threads}
    pairs = sorted(pair for pair in {*by_pair, *fetched, *probed} if set(pair) <= workers)
    return [
        BandwidthEstimate(*pair, planned, by_pair.get(pair), fetched.get(pair), probed.get(pair))
        for pair in pairs
    ]


def _fetched(repeats: Sequence[Repeat]) -> dict[tuple[str, str], float]:
    nbytes: defaultdict[tuple[str, str], float] = defaultdict(float)
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for repeat in repeats:
        fetches, names = repeat.fetches, repeat.places.nodes
        for row in np.flatnonzero(repeat.moved > LEAST_BYTES).tolist():
            pair = names[fetches.receiver[row]], names[fetches.sender[row]]
            nbytes[pair] += float(repeat.moved[row])
            seconds[pair] += float(fetches.stop[row] - fetches.start[row])
    return {pair: size / seconds[pair] for pair, size in nbytes.items() if seconds[pair] > 0}


def _probed(probes: Sequence[Throughput]) -> dict[tuple[str, str], float]:
    """Return the mean of each pair's TCP probes; data flows from ``src`` to ``dst``."""
    rates: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for probe in probes:
        if probe.proto == "tcp":
            rates[probe.dst, probe.src].append(probe.mbit * BYTES_PER_MBIT)
    return {pair: sum(values) / len(values) for pair, values in rates.items()}
