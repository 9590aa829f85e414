"""Which function makes which table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.wire import dialogues, flows, tables
from lab.wire.errors import WireError
from lab.wire.schema import TABLES, Table

if TYPE_CHECKING:
    from lab.wire.capture import Capture

MAKERS = {
    "messages": tables.messages,
    "ops": tables.ops,
    "tasks": dialogues.tasks,
    "heartbeats": dialogues.heartbeats,
    "matrix": tables.matrix,
    "series": tables.series,
    "composition": tables.composition,
    "gaps": dialogues.gaps,
    "packets": tables.packets,
    "flows": flows.flows,
}


def make(capture: Capture, name: str) -> dict[str, Table]:
    """The table asked for, and any that comes with it."""
    if name in ("transfers", "parts"):
        return dict(zip(("transfers", "parts"), dialogues.transfers(capture), strict=True))
    if name not in MAKERS:
        raise WireError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return {name: MAKERS[name](capture)}
