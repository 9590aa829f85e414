"""Rectangles in rows over time, as columns; not more of them than a page can hold.

A repeat of a million tasks has millions of intervals. Those that are shorter than some width are drawn
together: the time is divided into columns of that width, and in each row and column one rectangle stands for
all short ones. It has the description of the one that took most time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats, Mask

SEVERAL = -1  # the detail of a rectangle that stands for several


@dataclass(frozen=True)
class Row:
    """The name of a row, and a short form of it for narrow screens."""

    label: str
    short: str


@dataclass(frozen=True)
class Rectangles:
    """One entry per rectangle.

    Attributes:
        left, right: seconds since the repeat's start.
        row: the position in the panel's rows.
        low, high: the part of the row that it fills, between 0 and 1.
        colour: the position of its part of the time in ``time_parts.PARTS``.
        what: the position in the panel's descriptions.
        detail: the position in the panel's details; ``SEVERAL`` for none.
        count: how many intervals it stands for.
    """

    left: Floats
    right: Floats
    row: Codes
    low: Floats
    high: Floats
    colour: Codes
    what: Codes
    detail: Codes
    count: Codes

    def __len__(self) -> int:
        return len(self.left)

    def select(self, rows: Mask | Codes) -> Rectangles:
        return Rectangles(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True)
class Panel:
    """Rectangles with the texts they refer to. ``merged_s``: shorter intervals are drawn together."""

    title: str
    rows: Sequence[Row]
    rectangles: Rectangles
    descriptions: Sequence[str]
    details: Sequence[str]
    merged_s: float = 0.0

    @property
    def intervals(self) -> int:
        """How many intervals the panel shows, alone or together."""
        return int(self.rectangles.count.sum())


def at_most(panel: Panel, most: int, length_s: float) -> Panel:
    """Return the panel with at most a number of rectangles, and only with the details that remain.

    Args:
        length_s: the length of the time axis.
    """
    width = length_s * len(panel.rows) / most / 4
    short = panel
    while len(short.rectangles) > most:
        short = replace(panel, rectangles=merge(panel.rectangles, width), merged_s=width)
        width *= 1.25
    return _without_unused(short)


def merge(some: Rectangles, width: float) -> Rectangles:
    """Return one rectangle for all those of a row and a column that are shorter than the column."""
    is_short = some.right - some.left < width
    short = some.select(is_short)
    column = ((short.left + short.right) / 2 // width).astype(np.int64)
    longest_first = np.lexsort((short.left - short.right, column, short.row))
    short, column = short.select(longest_first), column[longest_first]
    is_new = (np.diff(short.row) != 0) | (np.diff(column) != 0)
    first = np.flatnonzero(np.append(True, is_new)[: len(short)])
    if not len(first):
        return some
    count = np.add.reduceat(short.count, first)
    merged = replace(
        short.select(first),
        left=np.minimum.reduceat(short.left, first),
        right=np.maximum.reduceat(short.right, first),
        low=np.minimum.reduceat(short.low, first),
        high=np.maximum.reduceat(short.high, first),
        detail=np.where(count > 1, SEVERAL, short.detail[first]),
        count=count,
    )
    return concatenate([some.select(~is_short), merged])


def concatenate(parts: Sequence[Rectangles]) -> Rectangles:
    """Return all rectangles of all parts."""
    columns = (
        np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Rectangles)
    )
    return Rectangles(*columns)


def _without_unused(panel: Panel) -> Panel:
    """Drop the details that no rectangle refers to: they are most of a page's size."""
    detail = panel.rectangles.detail
    used, index = np.unique(detail[detail != SEVERAL], return_inverse=True)
    renumbered = np.full(len(detail), SEVERAL)
    renumbered[detail != SEVERAL] = index
    details = [panel.details[number] for number in used.tolist()]
    return replace(panel, rectangles=replace(panel.rectangles, detail=renumbered), details=details)
