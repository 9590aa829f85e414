"""An estimate with its interval, and how it is written for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dasklab.model.forms.json_output import Number
from dasklab.model.forms.number_format import LARGER_UNIT, format_number


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95 % interval. The ends are NaN if there are too few samples."""

    value: Number
    low: Number = math.nan
    high: Number = math.nan

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

    A thousand or more of a unit is written in the next larger one: ``6.54 (6.01 to 7.00) Gbit/s``. The number
    furthest from 0 decides how many decimals the others may have: ``0.0032 (-0.0652 to 0.0813) s``.
    """
    while abs(interval.value) >= 1000 and unit in LARGER_UNIT:
        interval = Interval(interval.value / 1000, interval.low / 1000, interval.high / 1000)
        unit = LARGER_UNIT[unit]
    numbers = (interval.value, interval.low, interval.high)
    furthest = max((abs(end) for end in numbers if math.isfinite(end)), default=0.0)
    decimals = _decimals(number(furthest))
    value, low, high = (_with_decimals(end, number, decimals) for end in numbers)
    ends = "" if math.isnan(interval.low) else f" ({low} to {high})"
    return f"{value}{ends}{' ' if unit else ''}{unit}"


def _decimals(text: str) -> int:
    return len(text.partition(".")[2])


def _with_decimals(value: float, number: Callable[[float], str], most: int) -> str:
    """Write a number with at most so many decimals."""
    text = number(value)
    return text if _decimals(text) <= most else f"{round(value, most) + 0.0:,.{most}f}"  # not -0
