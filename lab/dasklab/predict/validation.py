"""How far simulations may be believed: the trials that were foretold, and by how much each was missed.

``validated.json`` is written by ``benchmarks/sim_validation.py --keep``, never by hand. An interval is
widened by what was missed there; what lies outside of all that was foretold is said to lie outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import Self

from dasklab.model.document import Document
from dasklab.model.strict import Strict
from dasklab.predict.prediction import TAIL_PCT, Row
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import store
from dasklab.sim.scenario import Scenario

HERE = Path(__file__).parent
FREE_MBIT = 10_000.0  # of so fast links a cluster's machines, not the links, hold data back
NEAR = 1.5  # a rate or a number is near another up to this ratio


class Case(Strict):
    """One trial that was foretold: what it was, and simulated over measured mean, less 1."""

    workload: str
    workers: int
    threads: int
    bridge: str
    cores: str  # that all machines shared, or that each had its own
    rate_mbit: float  # payload of the slowest worker's link
    delay_ms: float
    loss_pct: float
    error: float

    @classmethod
    def of(cls, asked: Scenario, error: float) -> Self:
        """What a scenario is, as far as cases are told apart."""
        links = asked.links.values()
        return cls(
            workload=asked.workload.name,
            workers=asked.workers,
            threads=asked.threads,
            bridge=asked.bridge,
            cores="own" if asked.cores is None else f"{math.ceil(asked.cores)} shared",
            rate_mbit=min(asked.rates_mbit.get(name, 0.0) or 1e5 for name in asked.worker_names),
            delay_ms=max((link.delay_ms for link in links), default=0.0),
            loss_pct=max((link.loss_pct for link in links), default=0.0),
            error=error,
        )


class Validated(Document):
    """All that was foretold and then compared."""

    FILE: ClassVar[str] = "validated.json"

    cases: tuple[Case, ...] = ()

    @classmethod
    def read(cls) -> Validated:
        """What this version of the simulation was validated on."""
        return store.read(cls, HERE) or cls()

    @property
    def missed(self) -> float:
        """By how much of the mean nine tenths of the cases were missed at most."""
        errors = [abs(case.error) for case in self.cases]
        return float(np.percentile(errors, 100 - 2 * TAIL_PCT)) if errors else 0.0

    def widened(self, row: Row) -> Row:
        """Of a simulated row: with an interval that allows for as much as was missed."""
        wide = Interval(row.mean_s, row.low_s, row.high_s).widened(self.missed)
        return replace(row, low_s=wide.low, high_s=wide.high)

    def outside(self, asked: Scenario) -> Iterator[str]:
        """In which ways a scenario is unlike all that was foretold, in words."""
        mine = Case.of(asked, 0.0)
        for name in ("workload", "bridge", "cores"):
            known = {str(getattr(case, name)) for case in self.cases}
            if getattr(mine, name) not in known:
                yield f"{name} {getattr(mine, name)} (validated: {', '.join(sorted(known)) or 'none'})"
        for name in ("workers", "threads", "rate_mbit", "delay_ms", "loss_pct"):
            values = [float(getattr(case, name)) for case in self.cases]
            value = float(getattr(mine, name))
            if name == "rate_mbit" and max(values, default=0.0) >= FREE_MBIT:
                value = min(value, max(values))  # faster than what held nothing back holds nothing back
            if not near(value, values):
                yield f"{name} {value:,.4g} (validated: {_range(values)})"
        if asked.racks:
            yield "racks (validated: none)"


def kept(readme: str, script: str, told: str) -> str:
    """The README with what a benchmark has told now in the place of what it had told before.

    Raises:
        ValueError: the README has no such place.
    """
    first, last = f"<!-- by {script} --keep -->\n", "<!-- end -->\n"
    before, found, rest = readme.partition(first)
    _, ended, after = rest.partition(last)
    if not (found and ended):
        raise ValueError(f"no {first.strip()} and {last.strip()} in it")
    return f"{before}{first}{told}\n{last}{after}"


def near(value: float, values: Sequence[float]) -> bool:
    """Does a value lie between others, or next to one?"""
    return bool(values) and min(values) / NEAR <= value <= max(values) * NEAR


def _range(values: Sequence[float]) -> str:
    if not values:
        return "none"
    least, most = min(values), max(values)
    return f"{least:,.4g}" if least == most else f"{least:,.4g} to {most:,.4g}"
