"""A capture point that part of the cluster's traffic does not pass."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.traffic import GRAPHS
from daskwire.analysis.problems.finding import Finding, Kind

MIN_UNSEEN_TRANSFERS = 3  # workers report as many, and the capture contains none
TRANSFER_OPS = {"get_data", "shuffle_receive"}
CLIENT_OPS = GRAPHS | {"key-in-memory"}


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield what Dask's messages prove to have happened, but the capture does not contain."""
    what = _only_one_direction(evidence)
    if not what and not evidence.is_cut:  # else what was not seen may be in the missing content
        what = _unseen_workers(evidence) or _unseen_transfers(evidence)
    if what:
        yield Finding(KIND, what, certainty=0.9)


def _only_one_direction(evidence: Evidence) -> str:
    single, _ = evidence.one_way
    return f"{len(single)} connections have packets in one direction only" if evidence.is_one_way else ""


def _unseen_workers(evidence: Evidence) -> str:
    """Compare the workers that Dask's messages name with those that talk to the scheduler in the capture."""
    capture = evidence.capture
    ops = set(capture.messages.op_name)
    if ops & CLIENT_OPS and not ops & {"compute-task", "task-finished", "task-erred"}:
        return "clients compute, but no message between a scheduler and its workers is in the capture"
    peers = {
        capture.nodes.processes.get(capture.senders[flow], capture.senders[flow])
        for flow in evidence.flows
        if capture.senders[flow ^ 1] in capture.nodes.schedulers
    }
    workers = {e for e in capture.nodes.listening if e not in capture.nodes.schedulers}
    names = {capture.nodes.listening[e] for e in workers}
    present = {capture.nodes.listening[e] for e in workers & peers}
    if not capture.nodes.schedulers or not names - present or not present:
        return ""
    return (
        f"{len(names - present)} of {len(names)} workers have no connection with the scheduler in the capture"
    )


def _unseen_transfers(evidence: Evidence) -> str:
    """Compare the transfers that workers report with those in the capture."""
    tasks, table = evidence.capture.table("tasks"), evidence.transfers
    reported = sum(1 for transfer_ms in tasks["transfer_ms"] if transfer_ms)
    schedulers = set(evidence.capture.scheduler_names.values())
    columns = zip(table["source"], table["destination"], table["kind"], strict=True)
    captured = sum(kind in TRANSFER_OPS and not schedulers & set(ends) for *ends, kind in columns)
    if reported < MIN_UNSEEN_TRANSFERS or captured:
        return ""
    return f"workers report {reported} tasks with transfers from other workers, of which none was captured"


KIND = Kind(
    name="wrong capture point",
    meaning="The capture does not contain traffic that Dask's own messages prove.",
    threshold=(
        "workers report transfers from other workers, and none is in the capture; or some workers have no"
        " connection with the scheduler in it; or all connections have one direction only"
    ),
    advice="Record on every worker, on a mirror port of the switch or on the bridge, and give all files.",
    effects=frozenset({"incomplete capture", "asymmetric path", "standstill"}),
    is_first=True,
    is_about_capture=True,
    detect=detect,
)
