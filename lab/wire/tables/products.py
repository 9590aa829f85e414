"""Which function makes which table."""

from __future__ import annotations

from lab.wire.capture import Capture
from lab.wire.errors import WireError
from lab.wire.schema import TABLES, Table
from lab.wire.tables import flows, heartbeats, messages, problems, tasks, traffic, transfers

MAKERS = {
    "messages": messages.messages,
    "ops": messages.ops,
    "tasks": tasks.tasks,
    "heartbeats": heartbeats.heartbeats,
    "matrix": traffic.matrix,
    "series": traffic.series,
    "composition": messages.composition,
    "gaps": tasks.gaps,
    "packets": traffic.packets,
    "flows": flows.flows,
    "problems": problems.problems,
}


def make(capture: Capture, name: str) -> dict[str, Table]:
    """The table asked for, and any that comes with it."""
    if name in ("transfers", "parts"):
        return dict(zip(("transfers", "parts"), transfers.transfers(capture), strict=True))
    if name not in MAKERS:
        raise WireError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return {name: MAKERS[name](capture)}
