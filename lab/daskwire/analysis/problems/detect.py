"""Run all detectors, join and rank their findings, and say whether the capture has problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import ip_address

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.retransmissions import SECOND_NS, overlap, seconds
from daskwire.analysis.problems.finding import Finding, both_directions, counted, is_cheap, summed
from daskwire.analysis.problems.kinds import KINDS
from daskwire.analysis.tables.completeness import completeness
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.file import tcpdump
from daskwire.decoder.net.connections import Connections

# Wireshark display filters for the packets of a finding.

MAX_FLOWS = 4  # connections that a display filter lists by their ports
MARGIN_S = 0.001  # around the time of a finding


def display_filter(finding: Finding, connections: Connections) -> str:
    """Build a Wireshark display filter for the packets of a finding."""
    parts = []
    if finding.flows:
        parts.append(_address_filter(finding.flows, connections))
    if finding.kind.filter:
        parts.append(f"({finding.kind.filter})")
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


# Join findings of one kind that one fault explains: a host that loses all peers' packets is one row.

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


# Rank findings: problems by cost, each with its consequences, then notes.

FOLLOWS_NS = 2_000_000_000  # a consequence begins at most this long after the end of its cause
AT_ONCE_NS = 100_000_000  # what a segment waits for before a reset that it causes


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
    ranking = [replace(cause, cost_s=_total_cost_s(cause, effects[cause])) for cause in causes]
    ranking.sort(key=lambda finding: (not finding.kind.is_first, -finding.cost_s))
    notes = [finding for finding in findings if finding.is_note]
    notes += [_as_note(effect, cause) for cause, own in effects.items() for effect in own]
    return ranking + sorted(notes, key=lambda finding: -finding.cost_s)


def _total_cost_s(cause: Finding, effects: list[Finding]) -> float:
    """Add the costs of a cause's consequences to its own.

    While everything stands still, nothing else costs.
    """
    together = [cause, *effects]
    standing = [finding for finding in together if finding.kind.stops_all]
    others = [finding for finding in together if not finding.kind.stops_all]
    times = [finding.when for finding in standing if finding.when]
    standing_s = min(seconds(times), sum(finding.cost_s for finding in standing))
    others_s = sum(f.cost_s * (1.0 - overlap(f.when, times) if f.when else 1.0) for f in others)
    return max(cause.cost_s, standing_s + others_s)


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
    place = f" of {cause.pair[1]}" if cause.pair[1] else ""
    place += f" to {cause.pair[2]}" if cause.pair[2] else ""
    return replace(effect, is_note=True, what=f"{effect.what} (a consequence of: {cause.kind.name}{place})")


def _explains(cause: Finding, effect: Finding) -> bool:
    """Return whether one finding is a consequence of another: by kind, place and time."""
    if effect.kind.name not in cause.kind.effects or (cause.kind.is_sudden and _begins_before(effect, cause)):
        return False
    return _is_there(cause, effect) and _overlaps(cause, effect)


def _is_there(cause: Finding, effect: Finding) -> bool:
    """Return whether a finding is where another one has its effects.

    A fault of a host affects all its paths. A fault of the path between two hosts affects this path, and what
    the hosts themselves do, but no path of either host to a third one.
    """
    hosts, affected = set(cause.pair[1:]) - {""}, set(effect.pair[1:]) - {""}
    if len(hosts) < 2 or not affected:
        return not hosts or not affected or bool(hosts & affected)
    return affected == hosts or (affected < hosts and not effect.kind.is_on_path)


def _begins_before(first: Finding, second: Finding) -> bool:
    """Return whether a finding begins clearly before another one."""
    return bool(first.when and second.when and first.when[0] < second.when[0] - AT_ONCE_NS)


def _overlaps(first: Finding, second: Finding) -> bool:
    if first.when is None or second.when is None:
        return True
    return max(first.when[0], second.when[0]) - min(first.when[1], second.when[1]) < FOLLOWS_NS


# Say whether a capture has problems, has none, or contains nothing that could be judged, and why.

UNJUDGED = (MessageKind.CUT, MessageKind.UNDECODED, MessageKind.HANDSHAKE)  # they show no work of a cluster


class Answer(Enum):
    NOTHING_TO_JUDGE = "nothing to judge"
    NO_PROBLEM = "no problem found"
    PROBLEMS = "problems found"


@dataclass(frozen=True)
class Basis:
    """What an answer rests on.

    Attributes:
        hosts: number of IP addresses in TCP segments.
        seconds: from the first packet to the last one.
        messages: number of decoded Dask messages.
        stream_seen: share of the Dask streams' bytes that is in the capture, None without Dask.
        dask_share: share of the TCP payload in connections that were decoded as Dask, None without payload.
    """

    hosts: int
    seconds: float
    messages: int
    stream_seen: float | None
    dask_share: float | None


@dataclass(frozen=True)
class Verdict:
    """The answer for a capture.

    Attributes:
        answer: one of three.
        reasons: why there is nothing to judge; else empty.
        basis: what the answer rests on.
    """

    answer: Answer
    reasons: tuple[str, ...]
    basis: Basis


def judge(capture: Capture, ignored: Collection[str] = ()) -> Verdict:
    """Answer for a whole capture, from its table of problems without those of the kinds ``ignored``.

    A problem of the capture itself, such as encryption, is a reason why there is nothing to judge, unless
    Dask messages were decoded. Any other problem is an answer without them: a refused connect needs none.
    """
    table, basis = capture.table("problems"), _basis(capture)
    columns = zip(table["severity"], table["problem"], table["what"], strict=True)
    problems = [
        (kind, what) for severity, kind, what in columns if severity == "problem" and kind not in ignored
    ]
    if any(basis.messages or not KINDS[kind].is_about_capture for kind, _ in problems):
        return Verdict(Answer.PROBLEMS, (), basis)
    if basis.messages:
        return Verdict(Answer.NO_PROBLEM, (), basis)
    obstacles = tuple(f"{kind}: {what}" for kind, what in problems)
    return Verdict(Answer.NOTHING_TO_JUDGE, (*_absences(capture), *obstacles), basis)


def _basis(capture: Capture) -> Basis:
    segments, connections, tally = capture.segments, capture.connections, capture.tally
    active = np.unique(segments.flow >> 1).tolist()
    ends = [connections.endpoints(2 * connection) for connection in active]
    payload = np.bincount(segments.flow >> 1, segments.length, minlength=len(connections))
    dask = int(payload[sorted(capture.conversations)].sum()) if capture.conversations else 0
    decoded = ~np.isin(capture.messages.kind, UNJUDGED)
    return Basis(
        hosts=len({address for a, _, b, _ in ends for address in (a, b)}),
        seconds=max(tally.last_ns - tally.first_ns, 0) / 1e9 if tally.packets else 0.0,
        messages=int(decoded.sum()),
        stream_seen=completeness(capture)["stream_seen"],
        dask_share=dask / int(payload.sum()) if payload.any() else None,
    )


def _absences(capture: Capture) -> list[str]:
    """Say what a capture without decoded messages lacks."""
    segments = capture.segments
    if not capture.packets:
        return ["the capture has no packets"]
    if not len(segments):
        return [f"no TCP segment in {counted(capture.packets, 'packet')}"]
    cut = np.flatnonzero(segments.captured < segments.length)
    if len(cut):
        kept_bytes = int(
            (segments.frame_bytes[cut].astype(np.int64) - segments.length[cut] + segments.captured[cut]).max()
        )
        return [
            f"no Dask message, and {counted(len(cut), 'packet')} are truncated to {kept_bytes:,} bytes;"
            f" record with {tcpdump.RECORD}"
        ]
    number = len(np.unique(segments.flow >> 1))
    return [f"no Dask message in {counted(number, 'TCP connection')}"]


# Run all detectors, and build the table of problems.


def find(capture: Capture) -> list[Finding]:
    """Return all findings of a capture: problems by cost, then notes."""
    evidence = Evidence(capture)
    findings = [finding for kind in KINDS.values() for finding in kind.detect(evidence)]
    return ranked(joined([_bounded(finding, evidence) for finding in findings], evidence))


def _bounded(finding: Finding, evidence: Evidence) -> Finding:
    """Limit a cost to the time in which packets were captured.

    Across an interruption of the recording, or to a packet with a false time, nobody is known to have waited.
    """
    if finding.when is None or not (gap_s := evidence.gap_s(finding.when)):
        return finding
    connections = max(len({flow >> 1 for flow in finding.flows}), 1)
    covered_s = (finding.when[1] - finding.when[0]) / SECOND_NS - gap_s
    cost_s = min(finding.cost_s, connections * covered_s)
    return replace(finding, cost_s=cost_s, is_note=finding.is_note or is_cheap(cost_s))


def problems(capture: Capture) -> Table:
    """Build one row per finding."""
    table = empty("problems")
    for finding in find(capture):
        add_row(
            table,
            finding.kind.name,
            "note" if finding.is_note else "problem",
            *finding.pair[1:],
            *(finding.when or (None, None)),
            finding.number,
            round(finding.cost_s, 3),
            round(100 * finding.certainty),
            finding.what,
            finding.kind.advice,
            display_filter(finding, capture.connections),
            finding.pair[0],
        )
    return table
