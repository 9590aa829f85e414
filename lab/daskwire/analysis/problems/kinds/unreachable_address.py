"""Workers that announce an address at which their peers cannot reach them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address

from daskwire.analysis.problems.evidence.connects import FailedConnects, Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind, counted, is_cheap
from daskwire.analysis.tables.participants import WORKER, Participant, participants
from daskwire.decoder.dask.nodes.clusters import cluster_name
from daskwire.decoder.dask.nodes.identities import Endpoint

SEARCH_OPS = frozenset({"request-refresh-who-has", "missing-data"})  # a worker asks where else the data is
UNREACHABLE = (Failure.REFUSED, Failure.UNANSWERED)


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding per cluster with such workers."""
    groups: defaultdict[str, list[Participant]] = defaultdict(list)
    failed = _failed_by_target(evidence)
    for worker in participants(evidence.capture):
        if worker.role == WORKER and _is_unreachable(evidence, worker, failed):
            groups[evidence.pairs[worker.flow][0]].append(worker)
    for cluster, workers in groups.items():
        yield _finding(evidence, cluster, workers, failed)


def _failed_by_target(evidence: Evidence) -> dict[Endpoint, list[FailedConnects]]:
    result: defaultdict[Endpoint, list[FailedConnects]] = defaultdict(list)
    for group in evidence.failed_connects:
        if group.failure in UNREACHABLE and not group.is_answered:
            result[group.target.address, group.target.port].append(group)
    return result


def _is_unreachable(
    evidence: Evidence, worker: Participant, failed: dict[Endpoint, list[FailedConnects]]
) -> bool:
    """Return whether a worker announces an address that is not its own, and none of its peers reached it."""
    capture, announced = evidence.capture, worker.announced
    source = capture.senders[worker.flow][0]
    translated = {flow >> 1 for pair in capture.translations for flow in pair}
    if announced is None or announced[0] == source or worker.flow >> 1 in translated:
        return False
    if announced in _reached(evidence):
        return False
    if _is_loopback(announced[0]):
        return not _is_loopback(source) and len(_hosts(evidence, evidence.pairs[worker.flow][0])) > 1
    return announced in failed or _searches(evidence, evidence.pairs[worker.flow][0]) > 0


def _reached(evidence: Evidence) -> set[Endpoint]:
    """Return the endpoints that sent data on some connection."""
    return {evidence.capture.senders[flow] for flow in evidence.capture.pieces.flow.tolist()}


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # a host name
        return address == "localhost"


def _hosts(evidence: Evidence, cluster: str) -> set[str]:
    flows = (flow for flow in evidence.flows if evidence.pairs[flow][0] == cluster)
    return {evidence.capture.senders[flow][0] for flow in flows}


def _searches(evidence: Evidence, cluster: str) -> int:
    """Count how often workers of a cluster did not find data where it should be."""
    messages = evidence.capture.messages
    flows = messages.flow[messages.op_message[messages.ops_named(SEARCH_OPS)]].tolist()
    return sum(evidence.pairs[flow][0] == cluster for flow in flows)


def _finding(
    evidence: Evidence,
    cluster: str,
    workers: list[Participant],
    failed: dict[Endpoint, list[FailedConnects]],
) -> Finding:
    groups = [group for worker in workers if worker.announced for group in failed.get(worker.announced, ())]
    searches = _searches(evidence, cluster)
    names = dict.fromkeys(evidence.pairs[worker.flow][1] for worker in workers)
    pairs = dict.fromkeys(
        f"{evidence.pairs[worker.flow][1]} announces {cluster_name(worker.announced)} but reaches the"
        f" scheduler from {evidence.capture.senders[worker.flow][0]}"
        for worker in workers
    )
    what = "; ".join([*pairs, *_evidence(groups, searches)])
    own = [flow for flow in evidence.flows if evidence.pairs[flow][0] == cluster]
    begin_ns = min(evidence.first_ns(worker.flow) for worker in workers)
    when = begin_ns, evidence.span(own)[1]
    sent_ns = [
        time_ns for (name, _), times in evidence.unreported.items() if name == cluster for time_ns in times
    ]
    waited_s = (when[1] - max(min(sent_ns), begin_ns)) / 1e9 if sent_ns else 0.0
    flows = tuple(worker.flow for worker in workers) + tuple(f for group in groups for f in group.flows)
    source = next(iter(names)) if len(names) == 1 else ""
    is_note = not groups and not searches and is_cheap(waited_s)
    cost_s = 0.0 if groups else waited_s  # failed connects are its consequences, with costs of their own
    return Finding(KIND, what, (cluster, source, ""), when, cost_s, 0.95, len(workers), flows, is_note)


def _evidence(groups: list[FailedConnects], searches: int) -> Iterator[str]:
    """Say what failed because of it."""
    if groups:
        peers = sorted({group.target.pair[1] for group in groups})
        number = sum(len(group.flows) for group in groups)
        yield f"{counted(number, 'connect')} of {', '.join(peers)} to it failed, and none succeeded"
    elif searches:
        yield f"no peer reached it, and workers asked {counted(searches, 'time')} where else data is"
    else:
        yield "no peer reached it"


KIND = Kind(
    name="unreachable address",
    meaning="A worker announces an address at which its peers cannot reach it.",
    threshold=(
        "it announces a loopback address to peers on other hosts, or an address from which it does not reach"
        " the scheduler; no peer reached it there, and connects failed, data was searched or tasks waited"
    ),
    advice=(
        "Start the worker with --interface, --host or --contact-address of a network that its peers reach"
        " (in a container: the host's network), and see 'daskwire nodes' and 'daskwire reach'."
    ),
    effects=frozenset({"unanswered connects", "refused connects", "wrong interface"}) | DELAYS,
    detect=detect,
)
