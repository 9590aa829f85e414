"""A kind of problem, and a finding of that kind: what is wrong, where and when, and what it cost.

The kinds are in ``daskwire.analysis.problems.kinds``, one module each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from daskwire.analysis.problems.evidence.connects import FailedConnects, Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.retransmissions import Interval, hull
from daskwire.analysis.problems.evidence.traffic import Pair

COSTLY_S = 0.5  # Dask messages waited for so long; a finding that cost less is a note
ANYWHERE: Pair = ("", "", "")

# Names of kinds that are consequences of many others.
DELAYS = frozenset({"late heartbeats", "slow connects", "standstill"})
LOSSES = frozenset({"retransmission time-outs", "loss", "half-open connection", "reordering"}) | DELAYS
FAILURES = frozenset({"mid-stream reset", "refused connects", "unanswered connects"})
FAILURES_IN_WORDS = {
    Failure.REFUSED: "was refused",
    Failure.ABORTED: "was reset after the SYN-ACK",
    Failure.UNANSWERED: "had no answer",
    Failure.SLOW: "took long",
}


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
        is_on_path: a path between two hosts has it; findings of several paths of one host are joined.
        stops_all: the whole cluster stands still for as long as it lasts, and that is its cost.
        is_about_capture: it says what the capture lacks, not what is wrong with the network or the cluster.
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
    is_on_path: bool = False
    stops_all: bool = False
    is_about_capture: bool = False


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


def both_directions(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings of one kind between the same two hosts, or between a host and all others."""
    places: defaultdict[frozenset[str], list[Finding]] = defaultdict(list)
    for finding in findings:
        places[frozenset(finding.pair[1:])].append(finding)
    result = []
    for own in places.values():
        first, *others = sorted(own, key=lambda finding: -finding.cost_s)
        if others:
            texts = (
                f"{'also' if other.pair == first.pair else 'in the other direction'}: {other.what}"
                for other in others
            )
            what = "; ".join([first.what, *texts])
            first = summed(own, what, first.pair)
        result.append(first)
    return result


def summed(own: list[Finding], what: str, pair: Pair) -> Finding:
    """Add up findings of one kind that have a common cause."""
    times = [finding.when for finding in own if finding.when]
    return replace(
        own[0],
        what=what,
        pair=pair,
        when=hull(times) if len(times) == len(own) else None,
        cost_s=sum(finding.cost_s for finding in own),
        certainty=max(finding.certainty for finding in own),
        number=sum(finding.number for finding in own),
        flows=tuple(sorted({flow for finding in own for flow in finding.flows})),
    )


def connect_findings(kind: Kind, groups: Iterable[FailedConnects], evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per host that the connects failed to reach; those that are exempt are notes."""
    hosts: defaultdict[tuple[str, str, bool], list[FailedConnects]] = defaultdict(list)
    for group in groups:
        hosts[group.target.pair[0], group.target.address, group.is_exempt].append(group)
    for own in hosts.values():
        yield _connect_finding(kind, own, evidence)


def _connect_finding(kind: Kind, groups: list[FailedConnects], evidence: Evidence) -> Finding:
    """Describe connects of one or several hosts that failed to reach another one.

    Who is refused has reached the host, so that is where the fault is, whoever connects.
    It is a problem at any cost if nobody ever connected with a port at which a scheduler or worker listens.
    """
    targets = [group.target for group in groups]
    (cluster, _, destination), address = targets[0].pair, targets[0].address
    ports = sorted({target.port for target in targets})
    sources = sorted({target.pair[1] for target in targets})
    flows = tuple(flow for group in groups for flow in group.flows)
    cost_s = sum(group.cost_s for group in groups)
    how_long = f" for {cost_s:.1f} s" if all(group.is_answered for group in groups) else ""
    is_at_host = len(sources) > 1 or groups[0].failure == Failure.REFUSED
    origin = f" from {', '.join(sources)}" if is_at_host else ""
    what = (
        f"connecting to {address} port{'' if len(ports) == 1 else 's'} {', '.join(map(str, ports))}{origin}"
        f" {FAILURES_IN_WORDS[groups[0].failure]}{how_long}: {counted(len(flows), 'connection')},"
        f" {counted(sum(group.attempts for group in groups), 'SYN')}"
    )
    pair = (cluster, destination, "") if is_at_host else (cluster, sources[0], destination)
    is_dask = any(evidence.is_dask_port(target.address, target.port) for target in targets)
    is_hopeless = is_dask and all(group.is_final for group in groups)
    is_note = groups[0].is_exempt or (is_cheap(cost_s) and not is_hopeless)
    when = hull([group.when for group in groups])
    return Finding(kind, what, pair, when, cost_s, 0.95, len(flows), flows, is_note)
