"""Which function makes which table."""

from __future__ import annotations

from daskwire.capture import Capture
from daskwire.errors import WireError
from daskwire.schema import TABLES, Table
from daskwire.tables import flows, heartbeats, messages, problems, tasks, traffic, transfers

MAKERS = {
    "messages": messages.messages,
    "ops": messages.ops,
    "heartbeats": heartbeats.heartbeats,
    "matrix": traffic.matrix,
    "series": traffic.series,
    "composition": messages.composition,
    "packets": traffic.packets,
    "flows": flows.flows,
    "problems": problems.problems,
}


def make(capture: Capture, name: str) -> dict[str, Table]:
    """The table asked for, and any that comes with it."""
    for names, maker in ((("transfers", "parts"), transfers.transfers), (("tasks", "gaps"), tasks.tasks)):
        if name in names:
            return dict(zip(names, maker(capture), strict=True))
    if name not in MAKERS:
        raise WireError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return {name: MAKERS[name](capture)}
