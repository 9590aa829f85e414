"""Bulk data of strangers on a link that Dask fills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, is_cheap
from daskwire.analysis.tables.completeness import ENCRYPTED
from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.dask.relays import RELAYED

BIN_NS = 100_000_000
MIN_SHARED_BINS = 10  # both Dask and strangers must send in so many
MIN_SHARE = 0.2  # each side must have sent so many of the bytes
MAX_UNEVENNESS = 1.5  # a full link carries the same all the time: 90th percentile by median
QUEUE_NS = 5_000_000  # a full link delays packets by this


@dataclass(frozen=True)
class Load:
    """What one host receives (or sends), in bins of BIN_NS: bytes of Dask, and of others."""

    first_bin: int
    dask: Ints
    others: Ints

    @property
    def is_shared(self) -> Flags:
        return (self.dask > 0) & (self.others > 0)


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield hosts whose full link carries much that is not Dask."""
    is_dask = _dask_flows(evidence)
    senders = evidence.capture.senders
    hosts = sorted({senders[flow][0] for flow in evidence.flows if is_dask[flow]})
    for address in hosts:
        for side, preposition in ((1, "to"), (0, "from")):
            flows = [flow for flow in evidence.flows if senders[flow ^ side][0] == address]
            own = [flow for flow in flows if is_dask[flow]]
            strangers = [flow for flow in flows if not is_dask[flow]]
            if own and strangers and (finding := _finding(evidence, address, preposition, own, strangers)):
                yield finding


def _dask_flows(evidence: Evidence) -> Flags:
    """Return which flows carry Dask, or may do so encrypted."""
    capture, result = evidence.capture, np.zeros(2 * len(evidence.capture.connections), bool)
    protocols = {**capture.other_protocols, **dict.fromkeys(capture.conversations, RELAYED)}
    for connection, protocol in protocols.items():
        result[[2 * connection, 2 * connection + 1]] = protocol in ENCRYPTED | {RELAYED}
    return result


def _finding(
    evidence: Evidence, address: str, preposition: str, own: list[int], strangers: list[int]
) -> Finding | None:
    load = _load(evidence, own, strangers)
    if load is None or load.is_shared.sum() < MIN_SHARED_BINS:
        return None
    total = (load.dask + load.others)[load.is_shared]
    median, high = float(np.median(total)), float(np.percentile(total, 90))
    alone = load.dask[(load.dask > 0) & ~load.is_shared]
    other_bytes = int(load.others[load.is_shared].sum())
    share = other_bytes / int(total.sum())
    is_full = high <= MAX_UNEVENNESS * median and alone.max(initial=0) <= MAX_UNEVENNESS * median
    if not is_full or not MIN_SHARE <= share <= 1 - MIN_SHARE or not _is_queued(evidence, own, load):
        return None
    peers = sorted({evidence.pairs[flow][2 if preposition == "from" else 1] for flow in strangers})
    rate_mbit = median * 8e3 / BIN_NS
    cost_s = other_bytes / median * BIN_NS / 1e9  # the time that the link spent on them
    what = (
        f"{share:.0%} of the bytes {preposition} it, {other_bytes / 1e6:,.0f} MB, are not Dask's, while its"
        f" link is full at {rate_mbit:,.0f} Mbit/s: connections {preposition} {', '.join(peers)}"
    ).replace("%", " %")
    bins = load.first_bin + np.flatnonzero(load.is_shared)
    when = int(bins[0]) * BIN_NS, int(bins[-1] + 1) * BIN_NS
    pair = evidence.pairs[own[0]]
    node = pair[1] if preposition == "from" else pair[2]
    return Finding(
        KIND, what, (pair[0], node, ""), when, cost_s, 0.8, len(strangers), tuple(strangers), is_cheap(cost_s)
    )


def _load(evidence: Evidence, own: list[int], strangers: list[int]) -> Load | None:
    segments = evidence.capture.segments
    rows = [evidence.data_rows(flows) for flows in (own, strangers)]
    if not all(map(len, rows)):
        return None
    bins = [segments.time_ns[part] // BIN_NS for part in rows]
    first, last = min(int(part[0]) for part in bins), max(int(part[-1]) for part in bins)
    dask, others = (
        np.bincount(part - first, segments.ip_bytes[selected], last - first + 1).astype(np.int64)
        for part, selected in zip(bins, rows, strict=True)
    )
    return Load(first, dask, others)


def _is_queued(evidence: Evidence, own: list[int], load: Load) -> bool:
    """Return whether Dask's packets wait in a queue while strangers send."""
    for samples in (evidence.rtts, evidence.echoes):
        index = np.flatnonzero(np.isin(samples.flow, own))
        bins = samples.time_ns[index] // BIN_NS - load.first_bin
        inside = (bins >= 0) & (bins < len(load.dask))
        index, bins = index[inside], bins[inside]
        shared = samples.rtt_ns[index[load.is_shared[bins]]]
        if len(shared) and np.median(shared) > int(samples.rtt_ns[index].min()) + QUEUE_NS:
            return True
    return False


KIND = Kind(
    name="cross traffic",
    meaning="Data that is not Dask's takes much of a link that Dask fills.",
    threshold=(
        "connections without Dask have 20 to 80 % of a host's bytes while its link is full: an even rate,"
        f" which Dask alone does not exceed, and packets that wait 5 ms or more; and that cost {COSTLY_S} s"
    ),
    advice="Move or limit the other program (tc, its own rate option), or give Dask a network of its own.",
    filter="tcp.len > 0",
    effects=frozenset({"loss", "retransmission time-outs", "bufferbloat", "slow link"}) | DELAYS,
    detect=detect,
)
