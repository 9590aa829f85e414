"""The function that builds each table."""

from __future__ import annotations

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.problems.detect import problems
from daskwire.schema import TABLES, Table
from daskwire.tables import flows, heartbeats, messages, participants, reach, tasks, traffic, transfers

BUILDERS = {
    "messages": messages.messages,
    "ops": messages.ops,
    "heartbeats": heartbeats.heartbeats,
    "matrix": traffic.matrix,
    "series": traffic.series,
    "composition": messages.composition,
    "packets": traffic.packets,
    "flows": flows.flows,
    "nodes": participants.nodes,
    "reach": reach.reach,
    "problems": problems,
}
PAIRS = {  # tables that are computed together
    ("transfers", "parts"): transfers.transfers,
    ("tasks", "gaps"): tasks.tasks,
}


def build_tables(capture: Capture, name: str) -> dict[str, Table]:
    """Build a table, and any other that is computed with it.

    Raises:
        WireError: there is no table with this name.
    """
    for names, build_pair in PAIRS.items():
        if name in names:
            return dict(zip(names, build_pair(capture), strict=True))
    if name not in BUILDERS:
        raise WireError(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
    return {name: BUILDERS[name](capture)}
