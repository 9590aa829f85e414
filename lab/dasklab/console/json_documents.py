"""What commands print with ``--json``, as models with a published schema.

python -m dasklab.console.json_documents     the schema: docs/reference/output.schema.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from dasklab.model.metric import METRICS
from dasklab.results.history.history import VersionStep
from dasklab.results.statistics.answer import Answer, Cell


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
"""A number; null where there is none."""


class Output(BaseModel, extra="forbid", from_attributes=True):
    """A part of an output; it can be made of an object that has attributes of the same names."""


class IntervalOutput(Output):
    """A value with its 95 % interval; the ends are null if there are too few samples."""

    value: Number
    low: Number
    high: Number


class RunRow(Output):
    """A row of `dasklab results`."""

    run: str = Field(description="Folder of the run.")
    quick: bool = Field(description="Whether it was run with --quick.")
    planned: int = Field(description="Trials that were planned.")
    finished: int = Field(description="Trials that have a result.")
    ok: int = Field(description="Trials that are valid.")
    accelerator: str = Field(description="kvm, tcg, lxc or simulated; ? if unknown.")


class CellRow(Output):
    """A cell of a run, compared with its baseline."""

    cell: str
    factors: dict[str, Any]
    n: int = Field(description="Samples.")
    trials: int
    median: IntervalOutput
    difference: IntervalOutput = Field(description="From the baseline, in the metric's unit.")
    ratio: IntervalOutput = Field(description="To the baseline.")
    verdict: Literal["baseline", "shown", "not shown"]

    @classmethod
    def of(cls, cell: Cell) -> CellRow:
        verdict = "baseline" if cell.baseline else "shown" if cell.is_shown else "not shown"
        return cls.model_validate(
            {
                "cell": cell.name,
                "factors": cell.factors,
                "n": cell.n,
                "trials": cell.trials,
                "median": cell.median,
                "difference": cell.difference,
                "ratio": cell.ratio,
                "verdict": verdict,
            }
        )


class MetricTable(Output):
    """One metric of a run; without cells if there is no valid baseline."""

    metric: str
    title: str
    unit: str
    blocks: int
    noise_floor: Number = Field(description="The smallest difference that would be shown.")
    cells: list[CellRow]

    @classmethod
    def of(cls, metric: str, answer: Answer | None) -> MetricTable:
        about = METRICS[metric]
        return cls(
            metric=metric,
            title=about.title,
            unit=about.unit,
            blocks=answer.blocks if answer else 0,
            noise_floor=answer.noise_floor if answer else None,
            cells=[CellRow.of(cell) for cell in answer.cells] if answer else [],
        )


class ShownRun(Output):
    """What `dasklab results show` prints."""

    run: str
    simulated_from: str | None = Field(description="The trial whose costs a simulated run uses, else null.")
    trials: dict[str, int] = Field(description="Trials by status: ok, invalid, unsupported, failed.")
    metrics: list[MetricTable]


class CellChangeOutput(Output):
    """A row of `dasklab results compare`."""

    metric: str
    cell: str
    old: Number
    new: Number
    ratio: IntervalOutput = Field(description="New over old.")
    is_shown: bool


class StepRow(Output):
    """A row of `dasklab history`: from a version of Dask to the next."""

    benchmark: str
    params: dict[str, Any]
    machine: str
    old: str
    new: str
    before: IntervalOutput
    after: IntervalOutput
    ratio: IntervalOutput = Field(description="After over before.")
    verdict: Literal["regression", "improvement", "change", "not shown"]

    @classmethod
    def of(cls, step: VersionStep) -> StepRow:
        return cls.model_validate(
            {
                "benchmark": step.benchmark,
                "params": step.params,
                "machine": step.machine,
                "old": step.old,
                "new": step.new,
                "before": step.before,
                "after": step.after,
                "ratio": step.change,
                "verdict": step.verdict,
            }
        )


class NicRow(Output):
    """A virtual NIC as the inventory requests it."""

    model: str
    mac: str
    bridge: str
    address: str | None
    rate_mbit: float = Field(description="0 is no cap.")


class HostRow(Output):
    """A host of `dasklab inspect`."""

    host: str
    groups: list[str]
    ssh: str = Field(description="user@address.")
    kind: str | None = Field(description="vm or container; null for a machine that the lab did not create.")
    vmid: int | None
    node: str | None
    cores: int | None
    memory_mb: int | None
    nics: list[NicRow]


class StatusRow(Output):
    """A host of `dasklab status`; null is what nobody knows."""

    host: str
    vmid: int | None
    node: str | None
    status: str | None = Field(description="Of the machine, as the endpoint reports it.")
    link: str | None = Field(description="The lab NIC.")
    answers: bool = Field(description="Whether the host answered.")
    dask: str | None = Field(description="The version that is installed.")
    service: str | None = Field(description="The state of the scheduler's or the worker's service.")
    impaired: int | None = Field(description="Number of queues that delay, drop or limit.")
    captures: int | None = Field(description="Number of captures that run.")


class CallRow(Output):
    """An API call that `dasklab up` would make."""

    method: str
    path: str
    params: dict[str, str | int]
    why: str


class FindingRow(Output):
    """A check of `dasklab doctor`."""

    text: str
    ok: bool
    fix: list[str] = Field(description="Lines that say how to fix it.")


class CheckedLab(Output):
    """The output of `dasklab doctor`."""

    folders: dict[str, str]
    findings: list[FindingRow]
    experiments: dict[str, list[str]] = Field(description="Kind of guest -> what the lab supports with it.")


class ReproducedValue(Output):
    """A property of a trial in both runs."""

    trial: str
    what: str
    old: str
    new: str
    same: bool


class Reproduced(Output):
    """The output of `dasklab reproduce`."""

    old: str
    new: str
    cell: str
    rows: list[ReproducedValue]
    verdicts: list[str] = Field(description="Sentences: is the difference larger than chance?")


OUTPUTS: dict[str, Any] = {
    "results": list[RunRow],
    "results show": ShownRun,
    "results compare": list[CellChangeOutput],
    "history": list[StepRow],
    "inspect": list[HostRow],
    "status": list[StatusRow],
    "plan": list[CallRow],
    "doctor": CheckedLab,
    "reproduce": Reproduced,
}
"""Command -> what it prints."""


def to_json(documents: Output | Sequence[Output]) -> str:
    """Return what a command prints."""
    return TypeAdapter(Any).dump_json(documents, indent=2).decode()


def schema() -> dict[str, Any]:
    """Return the JSON Schema of each command's output."""
    return {name: TypeAdapter(type_).json_schema() for name, type_ in OUTPUTS.items()}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
