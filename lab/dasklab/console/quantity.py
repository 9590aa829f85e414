"""Click types for amounts with a unit, such as ``10ms``, ``50mbit`` or ``10min``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dasklab.model.settings.impairments import UNITS, Impairment

WORDS: Mapping[str, Mapping[str, float]] = {  # suffix of a key -> accepted units, in its own unit
    "ms": {"us": 1e-3, "ms": 1, "s": 1e3},
    "pct": {"%": 1},
    "mbit": {"kbit": 1e-3, "mbit": 1, "gbit": 1e3},
}
EXAMPLES = {"ms": "10ms", "pct": "1%", "mbit": "50mbit"}
TIMES = {"s": 1, "min": 60, "h": 3600}


if TYPE_CHECKING:
    NumberType = click.ParamType[float]
else:
    NumberType = click.ParamType  # generic in recent versions only


class Quantity(NumberType):
    """A number with one of ``units``; without a unit it is in the unit with the factor 1."""

    name = "amount"

    def __init__(
        self, units: Mapping[str, float], example: str, *, least: float = 0, most: float | None = None
    ) -> None:
        self.units, self.example, self.least, self.most = units, example, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z%]*)", str(value).strip().lower())
        unit = next(name for name, factor in self.units.items() if factor == 1)
        factor = self.units.get(match[2] or unit) if match else None
        if match is None or factor is None:
            allowed = ", ".join(self.units)
            self.fail(f"{value!r} is not an amount such as {self.example}; units: {allowed}", param, ctx)
        amount = float(match[1]) * factor
        if amount < self.least or (self.most is not None and amount > self.most):
            limit = f"at most {self.most:g}" if amount > self.least else f"at least {self.least:g}"
            self.fail(f"{value!r} is out of range: {limit} {unit}", param, ctx)
        return amount


TIME_TO_LIVE = Quantity(TIMES, "10min", least=1, most=86_400)  # of what a host ends by itself: at most a day


def amount_of(impairment: Impairment) -> Quantity:
    """Return the type of an impairment's amount."""
    suffix = impairment.key.rpartition("_")[2]
    words = WORDS.get(suffix, {suffix: 1})
    return Quantity(words, EXAMPLES.get(suffix, f"10{suffix}"), most=UNITS[suffix].most)
