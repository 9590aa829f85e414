"""Sets of intervals, one for each process (or task), looked up for many moments at once."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats

MARGIN_S = 1.0  # between two members on the common axis


class IntervalSets:
    """Intervals of several members, merged where they touch and laid on one axis.

    The axis shifts every member by more than the length of the record, so one binary search answers for all.
    """

    def __init__(self, member: Codes, start: Floats, stop: Floats) -> None:
        """Take intervals in any order; they may overlap.

        Args:
            member: whose interval each is.
            start, stop: seconds.
        """
        some = stop > start
        member, start, stop = member[some], start[some], stop[some]
        self._base = float(start.min(initial=np.inf)) if len(start) else 0.0
        self._span = float(stop.max(initial=-np.inf)) - self._base if len(start) else 0.0
        axis_start, axis_stop = self._axis(member, start), self._axis(member, stop)
        order = np.argsort(axis_start, kind="stable")
        axis_start, start = axis_start[order], start[order]
        until = np.maximum.accumulate(axis_stop[order]) if len(order) else axis_stop
        first = np.flatnonzero(np.concatenate([[True], axis_start[1:] > until[:-1]])) if len(order) else order
        last = np.append(first[1:], len(order)) - 1 if len(order) else order
        self._axis_start, self._axis_stop = axis_start[first], until[last]
        self.member, self.start = member[order][first], start[first]
        self.stop = self.start + (self._axis_stop - self._axis_start)
        self._before = np.concatenate([[0.0], np.cumsum(self._axis_stop - self._axis_start)])

    def renumbered(self, number: Codes) -> IntervalSets:
        """Return the sets of the members that have a new number (``number[member] >= 0``)."""
        stays = number[self.member] >= 0 if len(number) else np.zeros(len(self.member), bool)
        return IntervalSets(number[self.member[stays]], self.start[stays], self.stop[stays])

    @property
    def total_s(self) -> float:
        """For how long the intervals of all members last together."""
        return float((self.stop - self.start).sum())

    def union(self, other: IntervalSets) -> IntervalSets:
        """Return what either covers, of each member."""
        return IntervalSets(
            np.concatenate([self.member, other.member]),
            np.concatenate([self.start, other.start]),
            np.concatenate([self.stop, other.stop]),
        )

    def around(self, member: Codes, time: Floats) -> tuple[Floats, Floats]:
        """Return the ends of the interval around each moment; the moment itself where there is none."""
        if not len(self._axis_start):
            return time, time
        at = self._axis(member, time)
        index = np.searchsorted(self._axis_start, at) - 1
        inside = (index >= 0) & (self._axis_stop[index] >= at)
        return np.where(inside, self.start[index], time), np.where(inside, self.stop[index], time)

    def within(self, member: Codes, start: Floats, stop: Floats) -> Floats:
        """Return how many seconds between two moments are covered."""
        return self._covered_before(member, np.maximum(start, stop)) - self._covered_before(member, start)

    def _covered_before(self, member: Codes, time: Floats) -> Floats:
        if not len(self._axis_start):
            return np.zeros(len(time))
        at = self._axis(member, time)
        index = np.searchsorted(self._axis_start, at, side="right") - 1
        partly = np.where(
            index >= 0,
            np.clip(at, self._axis_start[index], self._axis_stop[index]) - self._axis_start[index],
            0,
        )
        return self._before[np.maximum(index, 0)] + partly

    def _axis(self, member: Codes, time: Floats) -> Floats:
        """Return positions on the common axis; what lies outside the record goes to its margins."""
        shifted = np.clip(time - self._base, -MARGIN_S / 2, self._span + MARGIN_S / 2)
        return member * (self._span + 2 * MARGIN_S) + shifted


NO_INTERVALS = IntervalSets(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
