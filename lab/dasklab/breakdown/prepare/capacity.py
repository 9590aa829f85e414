"""Which workers were there, when: from the rows of the table of workers, one for each start of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dasklab.breakdown.model.arrays import Floats, floats
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.prepare.deaths import Death

SAME_END_S = 1.0  # the scheduler notes the end of a worker, and why, at about the same time


@dataclass(frozen=True)
class Stays:
    """When workers were there. One that a nanny started again has two stays under its name.

    Attributes:
        name: of the worker.
        joined, left: NaN where it was there before, or stayed.
        start, stop: the same within the repeat.
    """

    name: npt.NDArray[np.object_]
    joined: Floats
    left: Floats
    start: Floats
    stop: Floats

    def first_joined(self) -> dict[str, float]:
        """Return when each worker joined first; without those that were there from the start."""
        return self._known(self.joined, min)

    def last_left(self) -> dict[str, float]:
        """Return when each worker left for good; without those that stayed."""
        return self._known(self.left, max)

    def _known(self, moments: Floats, choose: Callable[[list[float]], float]) -> dict[str, float]:
        by_name = {str(name): moments[self.name == name].tolist() for name in pd.unique(self.name)}
        return {name: choose(own) for name, own in by_name.items() if not np.isnan(own).any()}

    def away(self, nodes: Mapping[str, int], deaths: Iterable[Death], end: float) -> IntervalSets:
        """Return when each worker was gone, to come back later, or because it had died.

        A dead worker is missing until another one takes its place, at the latest until the end of the repeat.
        """
        order = np.lexsort((self.start, self.name.astype(str)))
        name, start, stop = self.name[order], self.start[order], self.stop[order]
        again = np.flatnonzero(name[1:] == name[:-1])
        until = stop.copy()
        until[again] = start[again + 1]
        new = np.sort(np.array([*self.first_joined().values(), end]))
        for death in deaths:
            last = np.flatnonzero((name == death.worker) & (until == stop) & (stop < end))
            last = last[np.abs(stop[last] - death.time) < SAME_END_S]
            until[last] = [new[new > left][0] for left in stop[last]]
        member = np.array([nodes[str(worker)] for worker in name], np.int64)
        return IntervalSets(member, stop, until)

    def without_any(self, start: float, stop: float) -> IntervalSets:
        """Return when no worker was there; nothing if it is unknown which ones there were."""
        some = IntervalSets(np.zeros(len(self.name), np.int64), self.start, self.stop)
        if not len(self.name):
            return some
        starts, stops = np.append(start, some.stop), np.append(some.start, stop)
        return IntervalSets(np.zeros(len(starts), np.int64), starts, stops)


def stays(workers: pd.DataFrame, start: float, stop: float) -> Stays:
    """Return the stays of all workers in a repeat."""
    joined, left = floats(workers.joined_s), floats(workers.left_s)
    within_start = np.clip(np.where(np.isnan(joined), start, joined), start, stop)
    within_stop = np.clip(np.where(np.isnan(left), stop, left), within_start, stop)
    return Stays(workers.worker.to_numpy(object), joined, left, within_start, within_stop)
