"""An estimate with its interval, and how it is written for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dasklab.model.number_format import LARGER_UNIT, format_number


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95 % interval. The ends are NaN if there are too few samples."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def reach(self) -> float:
        """The largest distance from 0 within the interval."""
        return max(abs(end) for end in (self.value, self.low, self.high) if not math.isnan(end))

    def widened(self, prediction_error: float) -> Interval:
        """Return the interval of a positive quantity that may also be off by this share."""
        return Interval(self.value, self.low / (1 + prediction_error), self.high * (1 + prediction_error))

    def excludes(self, number: float) -> bool:
        """Whether the whole interval lies on one side of ``number``; False without an interval."""
        return self.low > number or self.high < number


def format_interval(
    interval: Interval, unit: str = "", number: Callable[[float], str] = format_number
) -> str:
    """Return ``4.16 (4.05 to 4.26) s``, or the value alone if there is no interval.

    A thousand or more of a unit is written in the next larger one: ``6.54 (6.01 to 7.00) Gbit/s``.
    """
    while abs(interval.value) >= 1000 and unit in LARGER_UNIT:
        interval = Interval(interval.value / 1000, interval.low / 1000, interval.high / 1000)
        unit = LARGER_UNIT[unit]
    ends = "" if math.isnan(interval.low) else f" ({number(interval.low)} to {number(interval.high)})"
    return f"{number(interval.value)}{ends}{' ' if unit else ''}{unit}"


def format_reduction(reduction_pct: Interval) -> str:
    """Return ``0.31 (0.25 to 0.37) % less``, ``... % more``, or that no difference is shown."""
    if not reduction_pct.excludes(0):
        return f"no difference shown: {format_interval(reduction_pct)} % less"
    if reduction_pct.value > 0:
        return f"{format_interval(reduction_pct)} % less"
    increase_pct = Interval(-reduction_pct.value, -reduction_pct.high, -reduction_pct.low)
    return f"{format_interval(increase_pct)} % more"
