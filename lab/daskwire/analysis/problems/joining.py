"""Join findings of one kind that one fault explains: a host that loses all peers' packets is one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, both_directions, summed

SENDER, RECEIVER = 1, 2  # index in a pair
MIN_PEER_SHARE = 0.75  # of the peers with traffic, so many are concerned if the host is
MIN_TRAFFIC_SHARE = 0.25  # a peer has traffic if it has so much of what a pair with a finding has


def joined(findings: list[Finding], evidence: Evidence) -> list[Finding]:
    """Join findings on paths that share a host; all others stay as they are."""
    groups: defaultdict[tuple[str, str, bool], list[Finding]] = defaultdict(list)
    result = []
    for finding in findings:
        if finding.kind.is_on_path and finding.pair[SENDER]:
            groups[finding.kind.name, finding.pair[0], finding.is_note].append(finding)
        else:
            result.append(finding)
    for group in groups.values():
        result += both_directions(list(_by_host(group, evidence)))
    return result


def _by_host(group: list[Finding], evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per host that most pairs with it concern, and the rest."""
    rest = [finding for finding in group if finding.pair[RECEIVER]]
    yield from (finding for finding in group if not finding.pair[RECEIVER])
    while hosts := list(_hosts(rest, evidence)):
        role, node, own = max(hosts, key=lambda host: (len(host[2]), sum(f.cost_s for f in host[2])))
        yield _at_host(role, node, own)
        rest = [finding for finding in rest if finding not in own]
    yield from rest


def _hosts(group: list[Finding], evidence: Evidence) -> Iterator[tuple[int, str, list[Finding]]]:
    """Yield the hosts at which several findings may be joined: role, name and findings."""
    for role in (RECEIVER, SENDER):
        for node in sorted({finding.pair[role] for finding in group}):
            own = [finding for finding in group if finding.pair[role] == node]
            peers = {finding.pair[SENDER + RECEIVER - role] for finding in own}
            if len(peers) > 1 and len(peers) >= MIN_PEER_SHARE * _number_of_peers(role, own, evidence):
                yield role, node, own


def _number_of_peers(role: int, own: list[Finding], evidence: Evidence) -> int:
    """Return the number of peers of a host with which it has as much traffic as with those concerned."""
    cluster, node = own[0].pair[0], own[0].pair[role]
    pairs = [pair for pair in evidence.flows_of if pair[0] == cluster and pair[role] == node]
    number = {pair: evidence.data_segments(pair) for pair in pairs}
    concerned = [number.get(finding.pair, 0) for finding in own]
    return sum(segments >= MIN_TRAFFIC_SHARE * max(min(concerned), 1) for segments in number.values())


def _at_host(role: int, node: str, own: list[Finding]) -> Finding:
    """Join findings of a host with several peers."""
    first, *others = sorted(own, key=lambda finding: -finding.cost_s)
    peer, place, preposition = first.pair[SENDER + RECEIVER - role], "to it", "from"
    if role == SENDER:
        place, preposition = "from it", "to"
    likewise = ", ".join(f"{f.pair[SENDER + RECEIVER - role]} ({f.cost_s:.1f} s)" for f in others)
    what = f"{place}, {preposition} {peer}: {first.what}; likewise {preposition} {likewise}"
    return summed(own, what, (first.pair[0], node, ""))
