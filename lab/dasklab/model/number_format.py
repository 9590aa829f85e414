"""Format numbers for people: digits, separators, and a dash for what does not exist."""

from __future__ import annotations

import math

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


def format_count(value: float) -> str:
    """Return a whole number with thousands separators: ``191,543``. A fraction keeps one decimal: ``2.5``."""
    if not math.isfinite(value):
        return UNKNOWN
    rounded = round(value, 1)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.1f}"
