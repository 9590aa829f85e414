"""A graph's stages, from the client to the scheduler's states, and how they grow with its size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dasklab.breakdown.model.repeat import Extent, Graph, Repeat


@dataclass(frozen=True)
class GraphStage:
    name: str
    title: str
    moves_with_link: bool = False


GRAPH_STAGES = (
    GraphStage("build", "client: built, until Dask has it"),
    GraphStage("pickle", "client: packed"),
    GraphStage("upload", "on the wire to the scheduler, until it has handled it", moves_with_link=True),
    GraphStage("materialise", "scheduler: unpacked and made single tasks"),
    GraphStage("order", "scheduler: culled and ordered"),
    GraphStage("state", "scheduler: states made"),
)
LARGER = 4.0  # growth needs a largest graph with at least this multiple of the smallest one's tasks
SQUARE = 1.5  # a stage whose exponent is at least this grows with the square, or nearly
LEAST_S = 0.01  # a shorter stage is not worth a sentence


@dataclass(frozen=True)
class GraphTimes:
    """Means over repeats, of all graphs of each: tasks, bytes sent, seconds by the name of the stage."""

    tasks: float
    nbytes: float
    seconds: Mapping[str, float] = field(default_factory=dict)


def graph_times(repeats: Sequence[Repeat]) -> GraphTimes | None:
    """Return how long the graphs of repeats took; None where nothing was recorded."""
    graphs = [graph for repeat in repeats for graph in repeat.graphs]
    if not graphs:
        return None
    total = dict.fromkeys((stage.name for stage in GRAPH_STAGES), 0.0)
    for repeat in repeats:
        for number, graph in enumerate(repeat.graphs):
            # a timed computation begins when the first graph is built; the other graphs, and those of a block
            # of the user's code, began at unknown times
            is_first = number == 0 and repeat.extent is Extent.COMPUTATION
            for name, seconds in _seconds(graph, repeat.start if is_first else graph.start):
                total[name] += max(0.0, seconds)  # clocks err: a graph may seem to arrive before it was sent
    count = len(repeats)
    return GraphTimes(
        sum(graph.tasks for graph in graphs) / count,
        sum(graph.nbytes for graph in graphs) / count,
        {name: seconds / count for name, seconds in total.items()},
    )


def _seconds(graph: Graph, start: float) -> Iterator[tuple[str, float]]:
    yield "build", graph.start - start
    yield "pickle", graph.sent - graph.start
    yield "upload", graph.received - graph.sent
    yield "materialise", graph.materialise
    yield "order", graph.order
    yield "state", graph.state


def growth(times: Sequence[GraphTimes]) -> dict[str, float]:
    """Return the exponent with which each stage grows with the number of tasks.

    It is computed from the smallest graph to the largest, and empty where they are of about the same size. A
    stage without length has no exponent.
    """
    smallest, largest = (pick(times, key=lambda graph: graph.tasks, default=None) for pick in (min, max))
    if smallest is None or largest is None or largest.tasks < LARGER * smallest.tasks:
        return {}
    ratio = math.log(largest.tasks / smallest.tasks)
    pairs = {
        stage.name: (smallest.seconds[stage.name], largest.seconds[stage.name]) for stage in GRAPH_STAGES
    }
    return {name: math.log(b / a) / ratio for name, (a, b) in pairs.items() if a > 0 and b > 0}


def quadratic(times: Sequence[GraphTimes]) -> list[GraphStage]:
    """Return the stages that grow with the square of the number of tasks, or nearly, and take long."""
    largest = max(times, key=lambda graph: graph.tasks, default=None)
    exponents = growth(times)
    return [
        stage
        for stage in GRAPH_STAGES
        if exponents.get(stage.name, 0) >= SQUARE and largest and largest.seconds[stage.name] >= LEAST_S
    ]
