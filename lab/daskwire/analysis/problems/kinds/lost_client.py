"""Clients that left in the middle of their computation."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.evidence.traffic import COMPUTATION_COMPLETE, GRAPHS
from daskwire.analysis.problems.finding import Finding, Kind, counted
from daskwire.analysis.tables.participants import CLIENT, departure, participants


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield clients whose host closed their connection while they waited for results, or held some.

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
        sent_ns, need = _need(evidence, pair[0], client.flow, end.time_ns)
        if need:
            start_ns = min(sent_ns, default=end.time_ns)
            what = (
                "its host closed the connection with the scheduler, and the client had not announced it;"
                f" {need}"
            )
            number, cost_s = max(len(sent_ns), 1), (end.time_ns - start_ns) / 1e9
            when = start_ns, end.time_ns
            yield Finding(KIND, what, pair, when, cost_s, 0.8, number, (client.flow,), not sent_ns)


def _need(evidence: Evidence, cluster: str, flow: int, time_ns: int) -> tuple[list[int], str]:
    """Return since when a client had waited for what, if it needed anything."""
    sent_ns = evidence.capture.table("tasks")["sent_ns"]
    if tasks := [sent_ns[row] for row in evidence.due_tasks(cluster, time_ns, time_ns + 1).tolist()]:
        return tasks, f"{counted(len(tasks), 'task')} had no result yet"
    told_ns = _latest(_times(evidence, {COMPUTATION_COMPLETE}, flow ^ 1, time_ns))
    if graphs := [time for time in _times(evidence, GRAPHS, flow, time_ns) if time > told_ns]:
        return graphs, f"{counted(len(graphs), 'graph')} had no result yet"
    if told_ns > _latest(_times(evidence, {"client-releases-keys"}, flow, time_ns)):
        return [], "it had released none of its latest results"
    return [], ""


def _times(evidence: Evidence, ops: Collection[str], flow: int, until_ns: int) -> list[int]:
    """Return when a flow carried some ops."""
    messages = evidence.capture.messages
    own = messages.op_message[messages.ops_named(ops)]
    times = messages.time_ns[own[messages.flow[own] == flow]]
    return sorted(times[times <= until_ns].tolist())


def _latest(times: list[int]) -> int:
    return max(times, default=0)


KIND = Kind(
    name="lost client",
    meaning="A client's process ended in the middle of its computation, which the scheduler then cancels.",
    threshold=(
        "its host closed its connection with the scheduler, no message had announced it, tasks or a graph had"
        " no result, and the cluster ran for 1 s or more after it; a note if it only held results"
    ),
    advice="Look for the end of the client's process: its log, a closed notebook, dmesg, a lost VPN.",
    filter="tcp.flags.fin == 1 || tcp.flags.reset == 1",
    is_sudden=True,
    detect=detect,
)
