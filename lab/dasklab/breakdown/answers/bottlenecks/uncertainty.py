"""Error bounds of bottlenecks, and which ranks they leave certain.

Repeats of the same work vary; twice the standard error of their mean is one bound. Within a repeat, computing
is divided by figures of the CPU that are sampled, so each of its parts may be wrong by half the time between
two samples; and stamps of different clocks are compared for every message.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from dasklab.breakdown.model.causes import (
    CAUSES,
    COMPUTING,
    CPU,
    GIL,
    LINK,
    OUTSIDE,
    SCHEDULING,
    UNKNOWN_WAIT,
    WORKER_LAG,
    Bottleneck,
)
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat

DIVIDED_BY_CPU = (COMPUTING, OUTSIDE, UNKNOWN_WAIT, GIL, CPU)
OF_MESSAGES = (LINK, SCHEDULING, WORKER_LAG)
SAMPLE_S = 0.25  # between two samples of a process's use of CPUs
MESSAGE_STAMP_S = 0.0005
STAMPED_SHARE = 0.25  # of many short messages: not all their stamps are wrong in the same direction


def uncertainties_s(
    repeats: Sequence[Repeat], paths: Sequence[Intervals], seconds: Sequence[Mapping[Bottleneck, float]]
) -> dict[Bottleneck, float]:
    """Return by how much the mean seconds of each bottleneck on the critical path may be wrong.

    Args:
        paths: the critical path of each repeat.
        seconds: those of each bottleneck on it.
    """
    count = len(repeats)
    within: defaultdict[Bottleneck, float] = defaultdict(float)
    for repeat, path, totals in zip(repeats, paths, seconds, strict=True):
        pieces = Counter(CAUSES[code].bottleneck for code in path.cause.tolist())
        for bottleneck, total in totals.items():
            sampled = repeat.evidence.cpu and bottleneck in DIVIDED_BY_CPU
            of_stamps = MESSAGE_STAMP_S * pieces[bottleneck] if bottleneck in OF_MESSAGES else 0.0
            of_stamps = min(of_stamps, STAMPED_SHARE * total)
            within[bottleneck] += min(total, SAMPLE_S / 2 if sampled else of_stamps) / count
    if count < 2:
        return dict(within)
    columns = {name: np.array([totals.get(name, 0.0) for totals in seconds]) for name in within}
    return {
        name: max(within[name], 2 * float(values.std(ddof=1)) / count**0.5)
        for name, values in columns.items()
    }
