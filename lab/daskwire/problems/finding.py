"""A finding: what is wrong, where and when, what it cost, and how to see it in Wireshark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from daskwire.net.connections import Connections
from daskwire.problems.kinds import COSTLY_S, KINDS

MAX_FLOWS = 4  # connections that a display filter lists by their ports
FOLLOWS_NS = 2_000_000_000  # a consequence begins at most this long after the end of its cause
AT_ONCE_NS = 100_000_000  # what a segment waits for before a reset that it causes
MARGIN_S = 0.001  # around the time of a finding in its display filter
Pair = tuple[str, str, str]  # cluster, source, destination; names are empty where unknown
Interval = tuple[int, int]  # begin and end, nanoseconds since 1970
ANYWHERE: Pair = ("", "", "")


@dataclass(frozen=True)
class Finding:
    """A possible problem.

    Attributes:
        kind: a name in ``KINDS``.
        what: the evidence, in a sentence with figures.
        pair: cluster, sending node (or the node concerned) and receiving node.
        when: begin and end, None for the whole capture.
        cost_s: seconds that Dask messages waited.
        certainty: 0 to 1.
        number: number of occurrences.
        flows: flows with its packets.
        is_note: below the threshold, or during start-up or shutdown.
    """

    kind: str
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


def ranked(findings: list[Finding]) -> list[Finding]:
    """Sort problems by cost, then notes. A consequence becomes a note, and its cost is its cause's."""
    problems = [finding for finding in findings if not finding.is_note]
    consequences = {cause: [effect for effect in problems if _explains(cause, effect)] for cause in problems}
    causes, effects = [], defaultdict(list)
    for finding in problems:
        cause = next((other for other in problems if _is_cause(other, finding, consequences)), None)
        if cause is None:
            causes.append(finding)
        else:
            effects[cause].append(finding)
    costs = {cause: sum(effect.cost_s for effect in own) for cause, own in effects.items()}
    ranking = [replace(cause, cost_s=cause.cost_s + costs.get(cause, 0.0)) for cause in causes]
    ranking.sort(key=lambda finding: (not KINDS[finding.kind].is_first, -finding.cost_s))
    notes = [finding for finding in findings if finding.is_note]
    notes += [_as_note(effect, cause) for cause, own in effects.items() for effect in own]
    return ranking + sorted(notes, key=lambda finding: -finding.cost_s)


def _is_cause(cause: Finding, effect: Finding, consequences: Mapping[Finding, list[Finding]]) -> bool:
    """Return whether one finding is the cause of another. If each explains the other, the costlier one is.

    Otherwise they would hide each other.
    """
    if effect not in consequences[cause]:
        return False
    return cause.cost_s > effect.cost_s or cause not in _all_consequences(effect, consequences)


def _all_consequences(finding: Finding, consequences: Mapping[Finding, list[Finding]]) -> set[Finding]:
    """Return the consequences of a finding, their consequences, and so on."""
    result: set[Finding] = set()
    pending = [finding]
    while pending:
        new = [effect for effect in consequences[pending.pop()] if effect not in result]
        result.update(new)
        pending += new
    return result


def _as_note(effect: Finding, cause: Finding) -> Finding:
    node = f" of {cause.pair[1]}" if cause.pair[1] else ""
    return replace(effect, is_note=True, what=f"{effect.what} (a consequence of: {cause.kind}{node})")


def _explains(cause: Finding, effect: Finding) -> bool:
    """Return whether one finding is a consequence of another: by kind, by node and by time."""
    kind = KINDS[cause.kind]
    if effect.kind not in kind.effects or (kind.is_sudden and _begins_before(effect, cause)):
        return False
    nodes, affected = set(cause.pair[1:]) - {""}, set(effect.pair[1:]) - {""}
    return (not nodes or not affected or bool(nodes & affected)) and _overlaps(cause, effect)


def _begins_before(first: Finding, second: Finding) -> bool:
    """Return whether a finding begins clearly before another one."""
    return bool(first.when and second.when and first.when[0] < second.when[0] - AT_ONCE_NS)


def _overlaps(first: Finding, second: Finding) -> bool:
    if first.when is None or second.when is None:
        return True
    return max(first.when[0], second.when[0]) - min(first.when[1], second.when[1]) < FOLLOWS_NS


def display_filter(finding: Finding, connections: Connections) -> str:
    """Build a Wireshark display filter for the packets of a finding."""
    parts = []
    if finding.flows:
        parts.append(_address_filter(finding.flows, connections))
    if KINDS[finding.kind].filter:
        parts.append(f"({KINDS[finding.kind].filter})")
    if finding.when is not None:
        begin, end = finding.when[0] / 1e9 - MARGIN_S, finding.when[1] / 1e9 + MARGIN_S
        parts.append(f"frame.time_epoch >= {begin:.6f} && frame.time_epoch <= {end:.6f}")
    return " && ".join(parts)


def _address_filter(flows: tuple[int, ...], connections: Connections) -> str:
    """Select the hosts of some flows, and their ports if the flows are few."""
    ends = sorted({connections.endpoints(flow & ~1) for flow in flows})
    hosts = sorted({(a, b) if a < b else (b, a) for a, _, b, _ in ends})
    common = set.intersection(*map(set, hosts))
    if len(hosts) <= MAX_FLOWS:
        addresses = [f"({_field(a)} == {a} && {_field(b)} == {b})" for a, b in hosts]
    else:
        addresses = [f"{_field(a)} == {a}" for a in sorted(common or {a for pair in hosts for a in pair})]
    parts = [_any_of(addresses)]
    if len(ends) <= MAX_FLOWS:
        parts.append(_any_of([f"(tcp.port == {a} && tcp.port == {b})" for _, a, _, b in ends]))
    return " && ".join(parts)


def _any_of(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def _field(address: str) -> str:
    return "ipv6.addr" if ip_address(address).version == 6 else "ip.addr"
