"""The tables of a section beside those of its metrics: interactions of factors, slopes over rates."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.metric import METRICS
from dasklab.report.drawings.captures.content import TextTable
from dasklab.results.statistics import interaction, slopes
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.interval import format_interval


def interactions(results: Mapping[str, Answer]) -> list[TextTable]:
    """Return a table of how much of the first metric's change either of two factors adds alone."""
    first = next(iter(results.values()), None)
    interactions = interaction.interactions(first) if first else []
    rows = [
        [row.name, *map(format_interval, (row.added, *row.alone_pct.values(), row.combined_pct))]
        for row in interactions
    ]
    if first is None or not rows:
        return []
    title = "What two levels add to the baseline, and how much of it either adds alone"
    alone = [f"{factor} alone, %" for factor in interactions[0].alone_pct]
    unit = METRICS[first.metric].unit
    return [TextTable(title, ["cell", f"added, {unit}", *alone, "only combined, %"], rows)]


def rate_slopes(frame: pd.DataFrame) -> list[TextTable]:
    """Return a table of the slopes over 1/rate, if the experiment varies a rate."""
    rows = [
        [slope.name, ", ".join(map(_rate, slope.rates_mbit)), format_interval(slope.waited_mb)]
        for slope in slopes.rate_slopes(frame, frame.attrs["factors"])
    ]
    title = (
        "Slope of the time over 1/rate: the data that would pass the slowest link while nothing else happens"
    )
    return [TextTable(title, ["cells", "rates, Mbit/s", "MB"], rows)] if rows else []


def _rate(mbit: float) -> str:
    return format_number(mbit) if mbit else "no cap"
