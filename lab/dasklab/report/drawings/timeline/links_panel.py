"""The panel of links: the rate of fetched data into and out of each worker, as the height of rectangles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.repeat import Repeat
from dasklab.model.forms.number_format import format_quantity
from dasklab.report.drawings.timeline.plain import DATA, Texts, rectangles, short_name
from dasklab.report.drawings.timeline.rectangles import Panel, Rectangles, Row, concatenate

TIME_AXIS_STEPS = 600
LEAST_RATE_SHARE = 0.005  # less of the highest rate is not drawn, and rates that differ by less are one


def links_panel(repeat: Repeat) -> Panel:
    """Show the rate of fetched data into and out of each worker: the height of a rectangle is the rate."""
    fetches, names = repeat.fetches, repeat.places.nodes
    edges = np.linspace(0, repeat.makespan, TIME_AXIS_STEPS + 1)
    ways = (("into", fetches.receiver), ("out of", fetches.sender))
    rates = {
        (way, int(worker)): _rate(repeat, node == worker, edges)
        for worker in repeat.workers
        for way, node in ways
        if (repeat.moved[node == worker] > 0).any()
    }
    highest = max((float(rate.max()) for rate in rates.values()), default=0.0)
    if not highest:
        return Panel("Links", [], _empty(), [], [])
    rows = [Row(f"{way} {names[w]}", f"{way.split()[0]} {short_name(names[w])}") for way, w in rates]
    parts, texts = [], Texts()
    for row, rate in enumerate(rates.values()):
        first, last = _plateaus(rate, highest)
        detail = [texts.code(format_quantity(value, "Mbit/s")) for value in rate[first].tolist()]
        low, high = 0.98 - 0.94 * rate[first] / highest, np.full(len(first), 0.98)  # rows grow downwards
        what = np.full(len(first), row)
        left, right = repeat.start + edges[first], repeat.start + edges[last + 1]
        part = rectangles(repeat, what, left, right, what, (low, high))
        parts.append(replace(part, detail=np.array(detail, np.int64), colour=np.full(len(first), DATA)))
    title = f"Links: fetched data, up to {format_quantity(highest, 'Mbit/s')}"
    return Panel(title, rows, concatenate(parts), [f"data {row.label}" for row in rows], texts.texts)


def _plateaus(rate: Floats, highest: float) -> tuple[Codes, Codes]:
    """Return the first and the last step of each stretch of time with about one rate above zero."""
    level = np.rint(rate / highest / LEAST_RATE_SHARE).astype(np.int64)
    ends = np.flatnonzero(np.append(np.diff(level) != 0, True))
    begins = np.append(0, ends[:-1] + 1)
    moving = level[begins] > 0
    return begins[moving], ends[moving]


def _empty() -> Rectangles:
    codes, floats = np.zeros(0, np.int64), np.zeros(0)
    return Rectangles(floats, floats, codes, floats, floats, codes, codes, codes, codes)


def _rate(repeat: Repeat, some: npt.NDArray[np.bool_], edges: Floats) -> Floats:
    """Return the Mbit/s in each step of the repeat's time, if each fetch moves its data evenly.

    Packets show when the data was on the wire; without them it is the whole time of the fetch.
    """
    fetches = repeat.fetches
    start = np.where(np.isnan(fetches.first_byte), fetches.start, fetches.first_byte)[some] - repeat.start
    stop = np.where(np.isnan(fetches.last_byte), fetches.stop, fetches.last_byte)[some] - repeat.start
    stop = np.maximum(stop, start + 1e-6)
    speed = repeat.moved[some] / (stop - start)
    moved = _sum_of_ramps(stop, speed, edges) - _sum_of_ramps(start, speed, edges)
    return 8e-6 * np.maximum(np.diff(moved), 0) / np.diff(edges)


def _sum_of_ramps(end: Floats, speed: Floats, time: Floats) -> Floats:
    """Return for each time the sum of ``speed * min(time, end)`` over all ramps."""
    order = np.argsort(end)
    end, speed = end[order], speed[order]
    finished = np.searchsorted(end, time, side="right")
    up_to_end = np.append(0.0, np.cumsum(end * speed))[finished]
    going_on = (speed.sum() - np.append(0.0, np.cumsum(speed))[finished]) * time
    return np.asarray(up_to_end + going_on, np.float64)
