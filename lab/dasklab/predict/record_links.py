"""What a record of a cluster says of its network: round trip and rate. No probe measured them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.repeat import Repeat
from dasklab.model.settings.nic import BYTES_PER_MBIT
from dasklab.records import Frames

LARGE_BYTES = 200_000.0  # shorter transfers take as long as their messages
MIN_TRANSFERS = 3
FAST_SHARE = 75  # percentile of the rates of single transfers: the others share links


def rtt_ms(frames: Frames) -> float:
    """Return the round trip between scheduler and worker: the fastest message of each direction.

    Each is stamped by two clocks; their difference cancels out. It includes some work of both ends.
    """
    tasks = frames["tasks"]
    outward_s = (tasks.arrived_s - tasks.sent_s).groupby(tasks.worker).min()
    return_s = (tasks.handled_s - tasks.reported_s).groupby(tasks.worker).min()
    trips = (outward_s + return_s).dropna()
    return max(0.0, float(trips.median()) * 1e3) if len(trips) else 0.1


def link_mbit(repeat: Repeat) -> float:
    """Return the rate that links have shown: the busiest one's, or that of a fast transfer; 0 if unknown."""
    fetches = repeat.fetches
    begin = np.fmax(fetches.start, fetches.serve_start) + fetches.serialise_s
    seconds = fetches.stop - fetches.deserialise_s - begin
    large = (repeat.moved >= LARGE_BYTES) & (seconds > 0)
    if large.sum() < MIN_TRANSFERS:
        return 0.0
    nbytes, begin, seconds = repeat.moved[large], begin[large], seconds[large]
    ends = [fetches.receiver[large], fetches.sender[large]]
    of_links = [rate for nodes in ends for rate in _rates(nodes, begin, begin + seconds, nbytes)]
    single = float(np.percentile(nbytes / seconds, FAST_SHARE))
    return max(single, *of_links) / BYTES_PER_MBIT


def _rates(nodes: Codes, start: Floats, stop: Floats, nbytes: Floats) -> list[float]:
    """Return for each node its bytes per second while any of its transfers was under way."""
    rates = []
    for _, rows in pd.DataFrame({"node": nodes, "start": start, "stop": stop, "bytes": nbytes}).groupby(
        "node"
    ):
        rows = rows.sort_values("start")
        reached = np.maximum.accumulate(rows.stop.to_numpy())
        idle = np.maximum(0.0, rows.start.to_numpy()[1:] - reached[:-1]).sum()
        rates.append(float(rows.bytes.sum() / (reached[-1] - rows.start.iloc[0] - idle)))
    return rates
