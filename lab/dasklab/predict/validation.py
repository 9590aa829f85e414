"""How far predictions can be trusted: the measured trials that were predicted, and each prediction's error.

``validated.json`` holds these cases. ``benchmarks/sim_validation.py --keep`` writes it; nobody edits it. Two
things follow from it: a prediction's interval is widened by the error that 90 % of the cases stayed below,
and a scenario that is unlike all validated cases is reported as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import Self

from dasklab.model.forms.document import Document
from dasklab.model.forms.number_format import format_number
from dasklab.model.forms.strict import Strict
from dasklab.predict.prediction import TAIL_PCT, RunSummary
from dasklab.results.run import Trial
from dasklab.results.statistics.interval import Interval
from dasklab.sim.scenario import Scenario

HERE = Path(__file__).parent
UNCAPPED_MBIT = 10_000.0  # machines, not links, limit the throughput at such rates
NEAR = 1.5  # a value within this ratio of a validated one counts as validated


class Case(Strict):
    """One predicted trial: what characterizes it, and its prediction error.

    Attributes:
        cores: the cores that all machines shared, or that each machine had its own.
        rate_mbit: payload rate of the slowest worker's link.
        error: simulated mean / measured mean - 1.
    """

    workload: str
    workers: int
    threads: int
    bridge: str
    cores: str
    rate_mbit: float
    delay_ms: float
    loss_pct: float
    error: float

    @classmethod
    def of(cls, scenario: Scenario, error: float) -> Self:
        """Return the case that a scenario is, with its prediction error."""
        links = scenario.links.values()
        return cls(
            workload=scenario.workload_name,
            workers=scenario.workers,
            threads=scenario.threads,
            bridge=scenario.bridge,
            cores="own" if scenario.cores is None else f"{math.ceil(scenario.cores)} shared",
            rate_mbit=min(scenario.rates_mbit.get(name, 0.0) or 1e5 for name in scenario.worker_names),
            # Below 2 ms a round trip is that of machines side by side, not of a delay
            delay_ms=max([scenario.rtt_ms // 2, *(link.delay_ms for link in links)]),
            loss_pct=max((link.loss_pct for link in links), default=0.0),
            error=error,
        )


class Validated(Document):
    """All cases in which a prediction was compared with a measurement."""

    FILE: ClassVar[str] = "validated.json"
    NAMED: ClassVar[tuple[str, ...]] = ("workload", "bridge", "cores")
    """Fields of a case that have names, not numbers, and that a scenario should share with a case."""

    cases: tuple[Case, ...] = ()

    @classmethod
    def read(cls) -> Self:
        """Read the cases of this version of the simulation."""
        return Trial(HERE).read(cls) or cls()

    @property
    def prediction_error(self) -> float:
        """The error, as a share of the measured mean, that 90 % of the cases stayed below."""
        errors = [abs(case.error) for case in self.cases]
        return float(np.percentile(errors, 100 - 2 * TAIL_PCT)) if errors else 0.0

    def widened(self, summary: RunSummary) -> RunSummary:
        """Return a summary of simulated repeats whose interval includes the prediction error."""
        wide = Interval(summary.mean_s, summary.low_s, summary.high_s).widened(self.prediction_error)
        return replace(summary, low_s=wide.low, high_s=wide.high)

    def outside(self, scenario: Scenario) -> Iterator[str]:
        """Yield a phrase for each way in which a scenario is unlike all validated cases."""
        case = Case.of(scenario, 0.0)
        for name in self.NAMED:
            validated = {str(getattr(other, name)) for other in self.cases}
            if getattr(case, name) not in validated:
                yield f"{name} {getattr(case, name)} (validated: {', '.join(sorted(validated)) or 'none'})"
        for name in ("workers", "threads", "rate_mbit", "delay_ms", "loss_pct"):
            values = [float(getattr(other, name)) for other in self.cases]
            value = float(getattr(case, name))
            if name == "rate_mbit" and max(values, default=0.0) >= UNCAPPED_MBIT:
                value = min(value, max(values))  # above it, a faster link changes nothing
            if not near(value, values):
                yield f"{name} {_number(value)} (validated: {_range(values)})"
        if scenario.racks:
            yield "racks (validated: none)"


class ValidatedRecords(Validated):
    """All cases in which a what-if of a record was compared with a measurement.

    ``benchmarks/record_predictions.py --keep`` writes them. Their workloads are the programs that were
    recorded; a what-if of any other program is as good as one of these.
    """

    FILE: ClassVar[str] = "validated_records.json"
    NAMED: ClassVar[tuple[str, ...]] = ("cores",)

    @property
    def prediction_error(self) -> float:
        """The error that 90 % of the cases stayed below, as a factor less 1: too long or too short."""
        factors = [abs(math.log1p(case.error)) for case in self.cases]
        return math.expm1(float(np.percentile(factors, 100 - 2 * TAIL_PCT))) if factors else 0.0


def outside_note(outside: Iterable[str]) -> list[str]:
    """Say what lies outside of what was validated, if anything does."""
    names = "; ".join(outside)
    return [f"Outside of what was validated, so trust it less: {names}."] if names else []


def replace_block(markdown: str, script: str, text: str) -> str:
    """Return a document with the block that a benchmark maintains replaced by new text.

    Args:
        markdown: the document; the block is between ``<!-- by SCRIPT --keep -->`` and ``<!-- end -->``.
        script: file name of the benchmark.
        text: the new content of the block.

    Raises:
        ValueError: the document has no such block.
    """
    first, last = f"<!-- by {script} --keep -->\n", "<!-- end -->\n"
    before, start, rest = markdown.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end):
        raise ValueError(f"the document has no block between {first.strip()} and {last.strip()}")
    return f"{before}{first}{text}\n{last}{after}"


def near(value: float, values: Sequence[float]) -> bool:
    """Return whether a value is between others, or close to one of them."""
    return bool(values) and min(values) / NEAR <= value <= max(values) * NEAR


def _range(values: Sequence[float]) -> str:
    if not values:
        return "none"
    least, most = min(values), max(values)
    return _number(least) if least == most else f"{_number(least)} to {_number(most)}"


def _number(value: float) -> str:
    """Return an amount; most of them are whole numbers."""
    return f"{value:,.0f}" if value == round(value) else format_number(value)
