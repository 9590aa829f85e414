"""Clients that left in the middle of their computation."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.evidence.traffic import COMPUTATION_COMPLETE, GRAPHS
from daskwire.analysis.problems.finding import Finding, Kind, counted
from daskwire.analysis.tables.participants import CLIENT, departure, participants


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield clients whose host closed their connection while tasks had no result.

    A client that closes says so before; that of a process that was killed is closed by its kernel.
    """
    capture = evidence.capture
    for client in participants(capture):
        end = departure(capture, client.flow) if client.role == CLIENT else None
        if end is None or end.flow != client.flow or end.is_announced:
            continue
        pair = evidence.pairs[client.flow]
        if evidence.running.get(pair[0], (0, 0))[1] < end.time_ns + SECOND_NS:
            continue  # the cluster was stopped as well
        tasks_ns = _outstanding(evidence, pair[0], end.time_ns)
        graphs_ns = [] if tasks_ns else _unanswered_graphs(evidence, client.flow, end.time_ns)
        if outstanding := tasks_ns or graphs_ns:
            cost_s = (end.time_ns - min(outstanding)) / 1e9
            what = (
                "its host closed the connection with the scheduler, and the client had not announced it;"
                f" {counted(len(outstanding), 'task' if tasks_ns else 'graph')} had no result yet"
            )
            when = min(outstanding), end.time_ns
            yield Finding(KIND, what, pair, when, cost_s, 0.8, len(outstanding), (client.flow,))


def _outstanding(evidence: Evidence, cluster: str, time_ns: int) -> list[int]:
    """Return when the tasks had been sent that had no result at a time."""
    sent_ns = evidence.capture.table("tasks")["sent_ns"]
    return [sent_ns[row] for row in evidence.due_tasks(cluster, time_ns, time_ns + 1).tolist()]


def _unanswered_graphs(evidence: Evidence, flow: int, time_ns: int) -> list[int]:
    """Return when a client had sent graphs after the last result that it was told of."""
    messages = evidence.capture.messages
    graphs, results = (
        messages.op_message[messages.ops_named(ops)] for ops in (GRAPHS, {COMPUTATION_COMPLETE})
    )
    told_ns = messages.time_ns[results[messages.flow[results] == flow ^ 1]].max(initial=0)
    sent_ns = messages.time_ns[graphs[messages.flow[graphs] == flow]]
    return sorted(sent_ns[(sent_ns > told_ns) & (sent_ns <= time_ns)].tolist())


KIND = Kind(
    name="lost client",
    meaning="A client's process ended in the middle of its computation, which the scheduler then cancels.",
    threshold=(
        "its host closed its connection with the scheduler, no message had announced it, tasks or a graph had"
        " no result, and the cluster ran for 1 s or more after it"
    ),
    advice="Look for the end of the client's process: its log, a closed notebook, dmesg, a lost VPN.",
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1",
    is_sudden=True,
    detect=detect,
)
