"""The schema of what commands print with ``--json``."""

from __future__ import annotations

from typing import Any

from dasklab.breakdown.show.documents import ExplainedClauses, ExplainedOperation, ExplainedTrial
from dasklab.commands.inspect import HostRow
from dasklab.commands.plan import PlannedCall
from dasklab.commands.status import StatusRow
from dasklab.comparison.comparison import CellChange
from dasklab.comparison.documents import ExplainedDifference, ExplainedVariation
from dasklab.console.tables import RecordRow, RunRow, ShownRun
from dasklab.machines.doctor import CheckedLab
from dasklab.model.forms.json_output import json_schema
from dasklab.results.history.history import VersionStep

OUTPUTS: dict[str, Any] = {
    "results": list[RunRow | RecordRow],
    "results show": ShownRun,
    "results compare": list[CellChange],
    "history": list[VersionStep],
    "inspect": list[HostRow],
    "status": list[StatusRow],
    "plan": list[PlannedCall],
    "doctor": CheckedLab,
    "explain": (
        ExplainedTrial | ExplainedOperation | ExplainedDifference | ExplainedVariation | ExplainedClauses
    ),
}
"""Command -> what it prints."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of each command's output."""
    return {name: json_schema(type_) for name, type_ in OUTPUTS.items()}
