"""Two summaries: the second run waits for data on the wire, too."""

from __future__ import annotations

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import COMPUTE, COMPUTING, LAG, LINK, WIRE

PAIR = "worker-3 < worker-1"
OLD = Summary(
    makespan_s=4.0,
    threads=3,
    repeats=5,
    breakdown={(COMPUTE, "worker-1"): 3.0, (LAG, "worker-2"): 1.0},
    path={(COMPUTE, "worker-1"): 4.0},
    bottlenecks={(COMPUTING, "worker-1"): 4.0},
)
NEW = Summary(
    makespan_s=7.7,
    threads=3,
    repeats=5,
    breakdown={(COMPUTE, "worker-1"): 3.0, (LAG, "worker-2"): 1.3, (WIRE, PAIR): 3.4},
    path={(COMPUTE, "worker-1"): 4.0, (WIRE, PAIR): 3.7},
    bottlenecks={(COMPUTING, "worker-1"): 4.0, (LINK, PAIR): 3.7},
)
