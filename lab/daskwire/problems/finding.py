"""A kind of problem, and a finding of that kind: what is wrong, where and when, and what it cost.

The kinds are in ``daskwire.problems.kinds``, one module each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from daskwire.problems.evidence.connects import FailedConnects
from daskwire.problems.evidence.evidence import Evidence
from daskwire.problems.evidence.intervals import Interval
from daskwire.problems.evidence.traffic import Pair

COSTLY_S = 0.5  # Dask messages waited for so long; a finding that cost less is a note
ANYWHERE: Pair = ("", "", "")

# Names of kinds that are consequences of many others.
DELAYS = frozenset({"late heartbeats", "slow connects"})
LOSSES = frozenset({"retransmission time-outs", "loss", "half-open connection", "reordering"}) | DELAYS
FAILURES = frozenset({"mid-stream reset", "refused connects", "unanswered connects"})


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    Attributes:
        name: its name in tables.
        meaning: what happened.
        threshold: when it is a problem.
        advice: what to check or change.
        detect: yields the findings of a capture, from its evidence.
        filter: display filter for its packets, in addition to addresses and time.
        effects: names of the kinds that are its consequences if they concern the same host at the same time.
        is_sudden: its consequences do not begin before it.
        is_first: it prevents other findings, so it comes before them.
    """

    name: str
    meaning: str
    threshold: str
    advice: str
    detect: Callable[[Evidence], Iterator[Finding]]
    filter: str = ""
    effects: frozenset[str] = frozenset()
    is_sudden: bool = False
    is_first: bool = False


@dataclass(frozen=True)
class Finding:
    """A possible problem.

    Attributes:
        kind: what kind of problem it is.
        what: the evidence, in a sentence with figures.
        pair: cluster, sending node (or the node concerned) and receiving node; empty where unknown.
        when: start and stop, None for the whole capture.
        cost_s: seconds that Dask messages waited.
        certainty: 0 to 1.
        number: number of occurrences.
        flows: flows with its packets.
        is_note: below the threshold, or during start-up or shutdown.
    """

    kind: Kind
    what: str
    pair: Pair = ANYWHERE
    when: Interval | None = None
    cost_s: float = 0.0
    certainty: float = 1.0
    number: int = 1
    flows: tuple[int, ...] = ()
    is_note: bool = False


def is_cheap(cost_s: float) -> bool:
    """Return whether a finding with this cost is only a note."""
    return cost_s < COSTLY_S


def notes_if_cheap(findings: Iterable[Finding], costly_s: float = COSTLY_S) -> list[Finding]:
    """Make findings of one kind notes if they are cheap together."""
    findings = list(findings)
    cheap = sum(finding.cost_s for finding in findings) < costly_s
    return [replace(finding, is_note=cheap) for finding in findings]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def connect_finding(kind: Kind, failure: str, group: FailedConnects, evidence: Evidence) -> Finding:
    """Describe failed connects."""
    target = group.target
    what = (
        f"connecting to {target.address} port {target.port} {failure}:"
        f" {counted(len(group.flows), 'connection')}, {counted(group.attempts, 'SYN')}"
    )
    is_note = (
        group.at_startup or not evidence.during_work(target.pair[0], group.when) or is_cheap(group.cost_s)
    )
    return Finding(
        kind, what, target.pair, group.when, group.cost_s, 0.95, len(group.flows), group.flows, is_note
    )
