"""Packets that are lost again and again in one direction."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import hull, seconds
from daskwire.analysis.problems.evidence.losses import PairLoss
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, notes_if_cheap, percent


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs that lose packets again and again."""
    yield from notes_if_cheap(map(_finding, evidence.losses.lossy), COSTLY_S / 2)


def _finding(loss: PairLoss) -> Finding:
    number, total = len(loss.waits), loss.data_segments
    side = "behind" if loss.is_behind else "before"
    share = number / max(total, 1)
    what = f"{number} of {total:,} data segments ({percent(share)}) were lost, {side} the capture point"
    cost_s = sum(seconds([wait]) for wait in loss.waits)
    return Finding(KIND, what, loss.pair, hull(loss.waits), cost_s, 0.9, number, tuple(loss.flows))


KIND = Kind(
    name="loss",
    meaning="Packets are lost again and again in one direction.",
    threshold=(
        "at least 5 segments in 4 separate episodes, and 0.1 % of the data segments between two hosts, and"
        f" their retransmission cost {COSTLY_S / 2} s in all: the sender slows down as well"
    ),
    advice="Check error and drop counters on the path: ip -s link, ethtool -S, tc -s qdisc.",
    filter="tcp.analysis.retransmission",
    effects=frozenset({"retransmission time-outs"}) | DELAYS,
    is_on_path=True,
    detect=detect,
)
