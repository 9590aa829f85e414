"""Which lines of the user's program the critical path leads through."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.model.causes import Cause
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat

Line = tuple[str, int, str]  # file, number, text


def client_lines(repeat: Repeat, path: Intervals, cause: Cause) -> dict[Line, float]:
    """Return for how many seconds of a cause on the path each line ran, the longest first."""
    own = path.select(path.is_cause(cause))
    running = IntervalSets(np.zeros(len(own), np.int64), own.start, own.stop)
    lines = repeat.lines
    seconds = running.within(np.zeros(len(lines.start), np.int64), lines.start, lines.stop)
    totals = np.bincount(lines.code, seconds, len(lines.names))
    order = np.argsort(-totals, kind="stable").tolist()
    return {lines.names[code]: float(totals[code]) for code in order if totals[code] > 0}
