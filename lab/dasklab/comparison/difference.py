"""What the mean breakdown of one side has more than that of another, by cause and place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from dasklab.breakdown.answers.summary import (
    ByBottleneck,
    Label,
    Ranked,
    Summary,
    hosts,
    ranked_cells,
    without_places,
)
from dasklab.breakdown.model.causes import (
    BUSY_PEERS,
    LINK,
    MESSAGE,
    PLACEMENT,
    WIRE,
    Bottleneck,
    Cause,
)
from dasklab.breakdown.model.repeat import SCHEDULER

SCHEDULER_LINK_RATIO = 2.0
"""If the scheduler's link has so many times the seconds of any worker's, it is the slow one: all share it."""


@dataclass(frozen=True)
class Difference:
    """One summary minus another, cell by cell; each adds up to the difference of the makespans."""

    old: Summary
    new: Summary

    @cached_property
    def makespan_s(self) -> float:
        return self.new.makespan_s - self.old.makespan_s

    @cached_property
    def breakdown(self) -> dict[tuple[Cause, str], float]:
        return _minus(self.new.breakdown, self.old.breakdown)

    @cached_property
    def path(self) -> dict[tuple[Cause, str], float]:
        return _minus(self.new.path, self.old.path)

    @cached_property
    def bottlenecks(self) -> dict[tuple[Bottleneck, str], float]:
        """Bottlenecks of the critical path.

        More data, at the old trial's seconds per byte, is due to placement. A byte that takes longer than
        before is due to the link, also for data that need not have moved in either trial.
        """
        old, new = _placement_as_link(self.old.bottlenecks), _placement_as_link(self.new.bottlenecks)
        cells, before = _minus(new, old), without_places(old)
        more = self.new.moved_bytes / self.old.moved_bytes - 1 if self.old.moved_bytes else 0.0
        for bottleneck in (LINK, BUSY_PEERS):
            grown = {
                cell: seconds for cell, seconds in cells.items() if cell[0] is bottleneck and seconds > 0
            }
            placed = max(0.0, more * before.get(bottleneck, 0.0))
            share = min(1.0, placed / sum(grown.values())) if grown else 0.0
            for (_, place), seconds in grown.items():
                cells[bottleneck, place] -= share * seconds
                cells[PLACEMENT, place] = cells.get((PLACEMENT, place), 0.0) + share * seconds
        return cells

    def ranked(self) -> Ranked:
        """Bottlenecks whose seconds on the critical path grew, the most first.

        Which host's link is slow is read from all threads: the path may cross that link only once. Every
        message crosses the scheduler's; it is named where no worker has half of its seconds.
        """
        on_wire = {cell: seconds for cell, seconds in self.breakdown.items() if cell[0] in (WIRE, MESSAGE)}
        by_link = hosts({(LINK, place): seconds for (_, place), seconds in on_wire.items()}, LINK)
        workers = [row for row in by_link if row[0] != SCHEDULER]
        slow = max(workers, key=itemgetter(1), default=("", 0.0))
        every = dict(by_link).get(SCHEDULER, 0.0)
        slow_host = SCHEDULER if every > SCHEDULER_LINK_RATIO * slow[1] else slow[0]
        return [
            (b, slow_host if b is LINK and slow_host else place, s)
            for b, place, s in ranked_cells(self.bottlenecks)
        ]


def _placement_as_link(cells: ByBottleneck) -> dict[tuple[Bottleneck, str], float]:
    """Count the time of avoidable data as the links'."""
    total: defaultdict[tuple[Bottleneck, str], float] = defaultdict(float)
    for (bottleneck, place), seconds in cells.items():
        total[LINK if bottleneck is PLACEMENT else bottleneck, place] += seconds
    return dict(total)


def _minus(
    new: Mapping[tuple[Label, str], float], old: Mapping[tuple[Label, str], float]
) -> dict[tuple[Label, str], float]:
    return {cell: new.get(cell, 0.0) - old.get(cell, 0.0) for cell in {**new, **old}}
