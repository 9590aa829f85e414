"""Time for which no worker was there, or a thread's worker was missing."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.causes import PLAN
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat


def without_worker(repeat: Repeat, intervals: Intervals) -> Floats:
    """Return for how long in some intervals their thread's worker was gone; of the path, all workers.

    ``lane`` is the node of the thread's worker here; -1 stands for the path. While the scheduler prepares a
    graph, workers would not help.
    """
    start, stop, node = intervals.start, intervals.stop, intervals.lane
    all_gone = repeat.evidence.no_worker.within(np.zeros(len(node), np.int64), start, stop)
    absent = np.where(node >= 0, repeat.evidence.away.within(node, start, stop), all_gone)
    prepared = _preparing(repeat).within(np.zeros(len(node), np.int64), start, stop)
    return np.where(intervals.is_cause(PLAN), np.maximum(0.0, absent - prepared), absent)


def _preparing(repeat: Repeat) -> IntervalSets:
    """Return when the scheduler prepared graphs; one set, of member 0."""
    received = np.array([graph.received for graph in repeat.graphs], float)
    spent = [graph.materialise + graph.order + graph.state for graph in repeat.graphs]
    lengths = np.nan_to_num(np.array(spent, float))
    return IntervalSets(np.zeros(len(received), np.int64), received, received + lengths)
