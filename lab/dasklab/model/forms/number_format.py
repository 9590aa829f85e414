"""Format numbers for people: digits, separators, and a dash for what does not exist."""

from __future__ import annotations

import math
from collections.abc import Callable

LARGER_UNIT = {"Mbit/s": "Gbit/s", "MB": "GB", "µs": "ms", "ms": "s"}  # a thousand of the first
LARGE_COUNT = 10
UNKNOWN = "\u2013"  # a dash stands for a number that does not exist


def format_number(value: float) -> str:
    """Return three significant digits with thousands separators: ``4.16``, ``0.0523``, ``9,540``."""
    if not math.isfinite(value):
        return UNKNOWN
    rounded = float(f"{value:.3g}")
    if rounded and abs(rounded) < 0.001:
        return f"{rounded:.1e}"
    digits = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{rounded:,.{digits}f}"


def format_fixed(value: float, digits: int, sign: str = "") -> str:
    """Return a number with so many decimals: ``0.52``; with ``sign="+"`` ``+0.52``. A zero has no sign."""
    rounded = round(value, digits)
    return f"{rounded:{sign}.{digits}f}" if rounded else f"{0:.{digits}f}"


def format_count(value: float) -> str:
    """Return a whole number with thousands separators: ``191,543``. Below 10 it has a decimal: ``2.5``."""
    if not math.isfinite(value):
        return UNKNOWN
    rounded = round(value, 1 if abs(value) < LARGE_COUNT else 0)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.1f}"


def format_quantity(value: float, unit: str, number: Callable[[float], str] = format_number) -> str:
    """Return a value with the unit that people would use: ``6.54 Gbit/s`` for 6,540 Mbit/s, ``0.190 s``."""
    while abs(value) >= 1000 and unit in LARGER_UNIT:
        value, unit = value / 1000, LARGER_UNIT[unit]
    return f"{number(value)} {unit}".rstrip()
