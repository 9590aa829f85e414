"""Intervals of time with a cause, as columns: a repeat has millions, and an object for each would not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats, Mask
from dasklab.breakdown.model.causes import CAUSES, Cause

TICK_S = 1e-9  # shorter than any clock's resolution: rounding, not time


@dataclass(frozen=True)
class Places:
    """Where time passes: on a node, or between two of them. Codes for columns, names for readers."""

    nodes: tuple[str, ...]

    def pair(self, receiver: Codes, sender: Codes) -> Codes:
        """Return the codes of the directions ``receiver < sender``."""
        return len(self.nodes) * (receiver + 1) + sender

    def name(self, code: int) -> str:
        """Return ``node``, or ``receiver < sender``; nothing for no place."""
        if code < 0:
            return ""
        receiver, sender = divmod(code, len(self.nodes))
        return self.nodes[sender] if receiver == 0 else f"{self.nodes[receiver - 1]} < {self.nodes[sender]}"


@dataclass(frozen=True)
class Intervals:
    """One row per interval.

    Attributes:
        start, stop: seconds on the repeat's clock.
        cause: codes of causes.
        place: codes of ``Places``; -1 for no place.
        task: rows of the repeat's tasks; ``NONE`` where the time belongs to no task.
        lane: the row of a picture that it belongs to: a thread, or the critical path.
    """

    start: Floats
    stop: Floats
    cause: Codes
    place: Codes
    task: Codes
    lane: Codes

    def __len__(self) -> int:
        return len(self.start)

    @property
    def seconds(self) -> Floats:
        return self.stop - self.start

    def select(self, rows: Mask | Codes) -> Intervals:
        """Return some of the rows; no copy where a mask takes all."""
        if rows.dtype == bool and rows.all():
            return self
        return Intervals(*(getattr(self, column.name)[rows] for column in fields(self)))

    def is_cause(self, *causes: Cause) -> Mask:
        is_one = np.zeros(len(CAUSES), bool)
        is_one[[cause.code for cause in causes]] = True
        return is_one[self.cause]

    def in_order(self) -> Intervals:
        """Sort by lane and time; no copy of what is sorted."""
        later_lane, later = np.diff(self.lane), np.diff(self.start)
        if ((later_lane > 0) | ((later_lane == 0) & (later >= 0))).all():
            return self
        return self.select(np.lexsort((self.start, self.lane)))


def concatenate(parts: Sequence[Intervals]) -> Intervals:
    """Return the rows of all parts; no copy of a single one."""
    filled = [part for part in parts if len(part)]
    if len(filled) == 1:
        return filled[0]
    columns = (
        np.concatenate([np.zeros(0, column_type), *(getattr(part, name) for part in filled)])
        for name, column_type in COLUMNS.items()
    )
    return Intervals(*columns)


COLUMNS = {"start": float, "stop": float} | dict.fromkeys(("cause", "place", "task", "lane"), np.int64)


class Windows:
    """Stretches of time to be filled with intervals: row ``i`` accepts what lies between its two ends.

    Attributes:
        task: for which task each window is explained.
        start, stop: its ends. Whatever is added beyond them is cut off.
        lane: the lane of its intervals.
        parts: what was added, in no order.
    """

    def __init__(self, task: Codes, start: Floats, stop: Floats, lane: Codes) -> None:
        self.task, self.start, self.stop, self.lane = task, start, stop, lane
        self.parts: list[Intervals] = []

    def add(self, rows: Codes, start: Floats, stop: Floats, cause: Cause, place: Codes) -> None:
        """Add an interval to each of some windows.

        Args:
            rows: the windows, one for each interval.
            start, stop: ends of the intervals, before they are cut.
        """
        start, stop = np.maximum(start, self.start[rows]), np.minimum(stop, self.stop[rows])
        some = stop - start > TICK_S
        rows = rows[some]
        codes = np.full(len(rows), cause.code)
        self.parts.append(
            Intervals(start[some], stop[some], codes, place[some], self.task[rows], self.lane[rows])
        )

    def intervals(self) -> Intervals:
        """Return all that was added, in no order."""
        return concatenate(self.parts)


def seconds_by(intervals: Intervals, places: Places) -> dict[tuple[Cause, str], float]:
    """Sum the seconds of each cause at each place."""
    most = 1 + int(intervals.place.max(initial=-1)) + 1
    cells, index = np.unique(intervals.cause * most + intervals.place + 1, return_inverse=True)
    sums = np.bincount(index, weights=intervals.seconds, minlength=len(cells))
    return {
        (CAUSES[cell // most], places.name(cell % most - 1)): float(total)
        for cell, total in zip(cells.tolist(), sums, strict=True)
    }
