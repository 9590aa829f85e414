"""What a record of a cluster says of its network: round trip and rate. No probe measured them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.repeat import Repeat
from dasklab.model.settings.nic import BYTES_PER_MBIT
from dasklab.records import Frames
from dasklab.sim.program import Program

LARGE_BYTES = 200_000.0  # shorter transfers take as long as their messages
MIN_TRANSFERS = 3
FAST_SHARE = 75  # percentile of the rates of single transfers: the others share links


@dataclass(frozen=True)
class ClientLink:
    """The client's link. ``mbit`` is what it has shown, or else the cluster's links; 0 if unknown."""

    rtt_ms: float
    mbit: float


def client_link(repeat: Repeat, frames: Frames, program: Program) -> ClientLink:
    """Return what a record says of the client's link: the fastest round trip and the fastest large transfer.

    The scheduler passes on what a client gathers when it has all of it, and what it scatters likewise, so
    the seconds that the links of the cluster took for the same bytes are subtracted.
    """
    trips_s = (frames["clock"].answered_s - frames["clock"].asked_s).dropna()
    scatters = frames["calls"][frames["calls"].kind == "scatter"]
    moved = [*zip(scatters.nbytes, scatters.stop_s - scatters.start_s, strict=True)]
    sizes = [works[-1][2] for works in program.works]
    gathers = [sum(sizes[key] for key in step.keys) for step in program.steps if step.does == "gather"]
    calls = [*zip(*repeat.calls.of_kind("gather"), strict=True)]
    if len(calls) == len(gathers):  # else which call moved what is unknown
        moved += [(nbytes, stop - start) for nbytes, (start, stop) in zip(gathers, calls, strict=True)]
    cluster_rate = link_mbit(repeat) * BYTES_PER_MBIT
    own_s = [
        (nbytes, seconds - nbytes / cluster_rate if cluster_rate else seconds)
        for nbytes, seconds in moved
        if nbytes >= LARGE_BYTES
    ]
    rtt = float(trips_s.min()) * 1e3 if len(trips_s) else 0.0
    if not own_s or any(seconds <= 0 for _, seconds in own_s):
        return ClientLink(rtt, cluster_rate / BYTES_PER_MBIT)
    return ClientLink(rtt, max(float(nbytes / seconds) for nbytes, seconds in own_s) / BYTES_PER_MBIT)


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
