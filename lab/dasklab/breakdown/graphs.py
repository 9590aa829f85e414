"""A graph's way from client to the scheduler's states in stages, and how they grow with its size. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from dasklab.breakdown.run import Graph, Run

STAGES = {  # in words, and whether a link is in it
    "build": ("client: built, until Dask has it", False),
    "pickle": ("client: packed", False),
    "upload": ("on the wire to the scheduler, until it has it", True),
    "materialise": ("scheduler: unpacked and made single tasks", False),
    "order": ("scheduler: culled and ordered", False),
    "state": ("scheduler: states made", False),
}
LARGER = 4.0  # graphs of so many times as many tasks tell how a stage grows
SQUARE = 1.5  # from this exponent on it is told as growing with the square
LEAST_S = 0.01  # and from this time on


@dataclass(frozen=True)
class Way:
    """Means over runs, of all graphs of each: tasks, bytes that were sent, seconds by stage."""

    tasks: float
    nbytes: float
    seconds: Mapping[str, float] = field(default_factory=dict)


def graphs(runs: Sequence[Run]) -> Way | None:
    """What the graphs of runs took; None where nobody recorded it."""
    every = list(chain.from_iterable(run.graphs for run in runs))
    if not every:
        return None
    total = dict.fromkeys(STAGES, 0.0)
    for run in runs:
        for number, graph in enumerate(run.graphs):
            for stage, seconds in _stages(graph, run.start if number == 0 else graph.begin):
                total[stage] += seconds
    share = 1 / len(runs)
    means = {stage: seconds * share for stage, seconds in total.items()}
    return Way(sum(g.tasks for g in every) * share, sum(g.nbytes for g in every) * share, means)


def _stages(graph: Graph, start: float) -> Iterator[tuple[str, float]]:
    yield "build", graph.begin - start
    yield "pickle", graph.sent - graph.begin
    yield "upload", graph.received - graph.sent
    yield "materialise", graph.materialise
    yield "order", graph.order
    yield "state", graph.state


def growth(ways: Sequence[Way]) -> dict[str, float]:
    """With which power of the number of tasks each stage grows, from the smallest graph to the largest.

    Empty where they are of about the same size. A stage of no length has none.
    """
    least, most = (pick(ways, key=lambda way: way.tasks, default=None) for pick in (min, max))
    if least is None or most is None or most.tasks < LARGER * least.tasks:
        return {}
    ratio = math.log(most.tasks / least.tasks)
    pairs = {stage: (least.seconds[stage], most.seconds[stage]) for stage in STAGES}
    return {stage: math.log(b / a) / ratio for stage, (a, b) in pairs.items() if a > 0 and b > 0}


def squares(ways: Sequence[Way]) -> list[str]:
    """Stages that grow with the square of the number of tasks, or nearly so, and are no trifle."""
    longest = max(ways, key=lambda way: way.tasks, default=None)
    found = growth(ways)
    return [s for s, power in found.items() if power >= SQUARE and longest and longest.seconds[s] >= LEAST_S]
