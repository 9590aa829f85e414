"""Put the clocks of processes on one clock, from what is certain: a message is not read before it is sent.

A local stamp taken after a reference stamp shows that the local clock is ahead by at most their difference;
one taken before it, by at least the difference. With an offset that is linear in time, each such pair cuts
off a half plane. What is left is the interval of possible offsets, and the line with the greatest margin to
all cuts is the estimate. If nothing is left, the clock was stepped or wandered, and ``Clock.linear`` is
false. Paths of unequal length
look like an offset: known delays are subtracted first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

Points = npt.NDArray[np.float64]  # rows of (reference time, local time minus reference time)
Point = tuple[float, float]
MOST_SKEW = 5e-4  # a kernel corrects its clock by at most this share
HULL_STRETCHES = 1000  # the search for a hull looks for the lowest point in each
NO_POINTS: Points = np.empty((0, 2))


@dataclass(frozen=True)
class Clock:
    """A local clock: ``local = reference + offset_s + skew * (reference - at_s)``.

    Attributes:
        low_s, high_s: bounds of the offset at ``at_s``; infinite without stamps.
        linear: whether a line agrees with all stamps.
        margin_s: the distance of the estimate from the nearest bound; negative by how much no line agrees.
        pairs: number of bounds.
    """

    at_s: float = 0.0
    offset_s: float = 0.0
    skew: float = 0.0
    low_s: float = -np.inf
    high_s: float = np.inf
    linear: bool = True
    margin_s: float = 0.0
    pairs: int = 0

    def to_reference(self, local: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Convert local times to the reference clock."""
        return local - self.offset_s - self.skew * (local - self.offset_s - self.at_s)

    @property
    def half_s(self) -> float:
        """Half of the interval of possible offsets."""
        return (self.high_s - self.low_s) / 2


def at_most(sent_reference: npt.ArrayLike, read_local: npt.ArrayLike, delay_s: float = 0.0) -> Points:
    """Return upper bounds of the offset: messages sent at reference times were read at local times.

    Args:
        delay_s: the least time that a message takes.
    """
    departure, arrival = np.asarray(sent_reference, float), np.asarray(read_local, float)
    return np.column_stack([departure, arrival - departure - delay_s])


def at_least(sent_local: npt.ArrayLike, read_reference: npt.ArrayLike, delay_s: float = 0.0) -> Points:
    """Return lower bounds of the offset: messages sent at local times were read at reference times."""
    departure, arrival = np.asarray(sent_local, float), np.asarray(read_reference, float)
    return np.column_stack([arrival, departure - arrival + delay_s])


def estimate(above: Points, below: Points) -> Clock:
    """Estimate the clock that agrees best with all bounds."""
    pairs = len(above) + len(below)
    if not len(above) or not len(below):
        bound = above if len(above) else below
        if not len(bound):
            return Clock()
        only = bound[:, 1].min() if len(above) else bound[:, 1].max()
        ends = {"high_s": only} if len(above) else {"low_s": only}
        return Clock(float(bound[:, 0].mean()), float(only), **ends, pairs=pairs)
    at = float(np.concatenate([above, below])[:, 0].mean())
    upper, lower = _hull(above, at), _hull(below * (1, -1), at) * (1, -1)
    offset, skew, margin = _widest(upper, lower)
    low, high = _interval(upper, lower) if margin >= 0 else (offset + margin, offset - margin)
    return Clock(at, offset, skew, low, high, margin >= 0, margin, pairs)


def _hull(points: Points, at: float) -> Points:
    """Return the points that a line below all of them can touch, with times relative to ``at``."""
    hull: list[Point] = []
    for point in sorted(map(tuple, _candidates(points - (at, 0)).tolist())):
        while len(hull) > 1 and _turn(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _candidates(points: Points) -> Points:
    """Drop most points that cannot be on the lower hull: those above a line between two lower ones.

    The lowest point of each of some stretches of time is a cheap first guess at such lines.
    """
    times = points[:, 0]
    stretch = ((times - times.min()) / max(1e-9, np.ptp(times)) * HULL_STRETCHES).astype(np.int64)
    order = np.lexsort((points[:, 1], stretch))
    lowest = points[order[np.append(True, np.diff(stretch[order]) > 0)]]
    line = np.interp(times, lowest[:, 0], lowest[:, 1], left=np.inf, right=np.inf)
    return np.asarray(points[points[:, 1] <= line], np.float64)


def _turn(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _constraints(upper: Points, lower: Points) -> tuple[Points, npt.NDArray[np.float64]]:
    """``matrix @ (offset, skew) <= bounds``."""
    matrix = np.concatenate(
        [
            np.column_stack([np.ones(len(upper)), upper[:, 0]]),
            -np.column_stack([np.ones(len(lower)), lower[:, 0]]),
        ]
    )
    return matrix, np.concatenate([upper[:, 1], -lower[:, 1]])


def _widest(upper: Points, lower: Points) -> tuple[float, float, float]:
    """Return offset, skew and margin of the line that is farthest from all bounds (Chebyshev centre)."""
    matrix, bounds = _constraints(upper, lower)
    centre = (upper[:, 1].min() + lower[:, 1].max()) / 2
    scale = max(1e-6, float(np.abs(bounds - matrix[:, 0] * centre).max()))
    solution = linprog(
        [0, 0, -1],
        A_ub=np.column_stack([matrix * (1, 1 / _span(upper, lower)), np.ones(len(matrix))]),
        b_ub=(bounds - matrix[:, 0] * centre) / scale,
        bounds=[(None, None), _slopes(upper, lower, scale), (None, None)],
        method="highs",
    )
    offset, slope, margin = solution.x * scale
    return float(offset + centre), float(slope / _span(upper, lower)), float(margin)


def _interval(upper: Points, lower: Points) -> tuple[float, float]:
    """Return the least and the greatest offset at time zero that all bounds allow."""
    matrix, bounds = _constraints(upper, lower)
    centre = (upper[:, 1].min() + lower[:, 1].max()) / 2
    scale = max(1e-6, float(np.abs(bounds - matrix[:, 0] * centre).max()))
    ends = []
    for sign in (1, -1):
        solution = linprog(
            [sign, 0],
            A_ub=matrix * (1, 1 / _span(upper, lower)),
            b_ub=(bounds - matrix[:, 0] * centre) / scale,
            bounds=[(None, None), _slopes(upper, lower, scale)],
            method="highs",
        )
        ends.append(float(solution.x[0] * scale + centre))
    return ends[0], ends[1]


def _span(upper: Points, lower: Points) -> float:
    times = np.concatenate([upper[:, 0], lower[:, 0]])
    return max(1e-3, float(np.abs(times).max()))


def _slopes(upper: Points, lower: Points, scale: float) -> tuple[float, float]:
    most = MOST_SKEW * _span(upper, lower) / scale
    return -most, most
