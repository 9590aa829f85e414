"""Time breakdowns summed up by cause and place, of all threads and of the critical path.

Seconds of the breakdown are shares of the thread-seconds that existed, so they add up to the makespan, as
do those of the critical path. Over several repeats they are means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TypeVar

from dasklab.breakdown.answers.bottlenecks.bottlenecks import bottlenecks
from dasklab.breakdown.answers.bottlenecks.uncertainty import uncertainties_s
from dasklab.breakdown.answers.facts.activities import lag_activity
from dasklab.breakdown.answers.graphs import GraphTimes, graph_times
from dasklab.breakdown.answers.invariants import Violation, checked, lower_replay
from dasklab.breakdown.answers.path.client_lines import Line, client_lines
from dasklab.breakdown.answers.path.replay import Replay, mean, replay
from dasklab.breakdown.assign.threads import without_threads
from dasklab.breakdown.model.causes import (
    ANSWER,
    BUILD,
    PLACEMENT,
    RECEIVED,
    UNDIVIDED,
    USER,
    Bottleneck,
    Cause,
)
from dasklab.breakdown.model.intervals import Intervals, seconds_by
from dasklab.breakdown.model.repeat import Repeat

Label = TypeVar("Label", bound=Hashable)  # a cause or a bottleneck
ByCause = Mapping[tuple[Cause, str], float]
ByBottleneck = Mapping[tuple[Bottleneck, str], float]
Ranked = list[tuple[Bottleneck, str, float]]


@dataclass(frozen=True)
class Summary:
    """Means over repeats, in seconds, by cause (or bottleneck) and place.

    Attributes:
        replayed: None if the replay misses the measured time by too much.
        violations: what was claimed beyond the evidence and has been lowered, of all repeats.
        undivided: where the longest stretch of the path lies that could not be divided, of any repeat, in
            seconds since its start; empty if there is none.
        client_lines: seconds of the client's bottlenecks on the path in which each line of its program ran.
        lag_activity: what blocked event loops for most of the worker lag on the path, as in the table stacks;
            empty if it was several things, or is unknown.
        uncertainty_s: by how much the seconds of each bottleneck may be wrong.
    """

    makespan_s: float
    threads: int
    repeats: int
    breakdown: ByCause = field(default_factory=dict)
    path: ByCause = field(default_factory=dict)
    bottlenecks: ByBottleneck = field(default_factory=dict)
    moved_bytes: float = 0.0
    replayed: Replay | None = None
    graphs: GraphTimes | None = None
    violations: Sequence[Violation] = ()
    undivided: tuple[float, float] | tuple[()] = ()
    client_lines: Mapping[tuple[Bottleneck, Line], float] = field(default_factory=dict)
    lag_activity: str = ""
    uncertainty_s: Mapping[Bottleneck, float] = field(default_factory=dict)

    @cached_property
    def violated(self) -> dict[str, int]:
        """How often each invariant was violated, by its name."""
        return dict(Counter(violation.invariant for violation in self.violations))

    @cached_property
    def by_cause(self) -> dict[Cause, float]:
        """The breakdown of all threads, without places."""
        return without_places(self.breakdown)

    @cached_property
    def path_by_cause(self) -> dict[Cause, float]:
        """The critical path, without places."""
        return without_places(self.path)

    def ranked(self) -> Ranked:
        """Bottlenecks of the critical path, the largest first: name, host with the largest share, seconds."""
        return ranked_cells(self.bottlenecks)

    def first(self) -> Ranked:
        """The largest bottleneck, and those after it that may be as large."""
        ranked = self.ranked()
        seconds = [(seconds, self.uncertainty_s.get(bottleneck, 0.0)) for bottleneck, _, seconds in ranked]
        return ranked[: indistinguishable(seconds)]


def summarise(repeats: Sequence[Repeat]) -> Summary:
    """Return the mean of several repeats of the same work."""
    breakdown: defaultdict[tuple[Cause, str], float] = defaultdict(float)
    path: defaultdict[tuple[Cause, str], float] = defaultdict(float)
    blamed: defaultdict[tuple[Bottleneck, str], float] = defaultdict(float)
    violations: list[Violation] = []
    undivided: list[tuple[float, float]] = []
    lines: defaultdict[tuple[Bottleneck, Line], float] = defaultdict(float)
    paths: list[Intervals] = []
    activities: set[str] = set()
    of_repeats: list[dict[Bottleneck, float]] = []
    for repeat in repeats:
        result, violated = checked(repeat)
        violations += violated
        nobody = without_threads(repeat)
        manned_s = repeat.makespan - float(nobody.seconds.sum())
        weight = manned_s / max(1e-9, float(result.threads.seconds.sum()))
        _add(breakdown, seconds_by(result.threads, repeat.places), weight / len(repeats))
        _add(breakdown, seconds_by(nobody, repeat.places), 1 / len(repeats))
        _add(path, seconds_by(result.path, repeat.places), 1 / len(repeats))
        cells = bottlenecks(repeat, result.path)
        _add(blamed, cells, 1 / len(repeats))
        paths.append(result.path)
        activities.add(lag_activity(repeat, result.path))
        of_repeats.append(without_places(cells))
        undivided += _undivided(result.path, repeat.start)
        for cause in (USER, ANSWER, BUILD):
            for line, seconds in client_lines(repeat, result.path, cause).items():
                lines[cause.bottleneck, line] += seconds / len(repeats)
    makespan_s = sum(repeat.makespan for repeat in repeats) / max(1, len(repeats))
    replayed, of_replay = lower_replay(mean([replay(repeat) for repeat in repeats]), makespan_s)
    violations += of_replay
    return Summary(
        makespan_s=makespan_s,
        threads=sum(repeats[0].threads.values()) if repeats else 0,
        repeats=len(repeats),
        breakdown=breakdown,
        path=path,
        bottlenecks=blamed,
        moved_bytes=sum(repeat.sent_bytes for repeat in repeats) / max(1, len(repeats)),
        replayed=replayed,
        graphs=graph_times(repeats),
        violations=violations,
        undivided=max(undivided, key=lambda ends: ends[1] - ends[0], default=()),
        client_lines=lines,
        lag_activity=activities.pop() if len(activities) == 1 else "",
        uncertainty_s=uncertainties_s(repeats, paths, of_repeats),
    )


def indistinguishable(seconds: Sequence[tuple[float, float]]) -> int:
    """Return how many of some figures may be the largest: the first, and those that follow it closely.

    Args:
        seconds: figures with their uncertainties, the largest first.
    """
    return sum(
        1
        for _ in takewhile(
            lambda figure: seconds[0][0] - figure[0] <= seconds[0][1] + figure[1] or figure is seconds[0],
            seconds,
        )
    )


def _undivided(path: Intervals, start: float) -> list[tuple[float, float]]:
    """Return the stretches of a path that could not be divided, in seconds since a moment."""
    own = path.select(path.is_cause(UNDIVIDED))
    return list(zip((own.start - start).tolist(), (own.stop - start).tolist(), strict=True))


def without_places(cells: Mapping[tuple[Label, str], float]) -> dict[Label, float]:
    """Sum the seconds of each cause, or bottleneck, whatever the place."""
    total: defaultdict[Label, float] = defaultdict(float)
    for (label, _), seconds in cells.items():
        total[label] += seconds
    return dict(total)


def hosts(cells: Mapping[tuple[Label, str], float], label: Label) -> list[tuple[str, float]]:
    """Return the hosts that a cause's seconds are about, most first.

    A pair counts for both of its ends, but for what its first one, the receiver, waits for or is busy with.
    """
    ends = 1 if label in (RECEIVED, PLACEMENT) else 2
    total: defaultdict[str, float] = defaultdict(float)
    for (other, place), seconds in cells.items():
        if other == label:
            for host in place.split(" < ")[:ends]:
                total[host] += seconds
    return sorted(total.items(), key=lambda item: -item[1])


def ranked_cells(cells: ByBottleneck) -> Ranked:
    """Return bottlenecks with the place that has most of their seconds, the most first."""
    order = sorted(without_places(cells).items(), key=lambda item: -item[1])
    return [(bottleneck, hosts(cells, bottleneck)[0][0], seconds) for bottleneck, seconds in order]


def _add(
    total: dict[tuple[Label, str], float], cells: Mapping[tuple[Label, str], float], weight: float
) -> None:
    for cell, seconds in cells.items():
        total[cell] += seconds * weight
