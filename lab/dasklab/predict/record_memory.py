"""Whether a cluster of another size could hold a recorded block's results in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.answers.facts.memory import WorkerMemory
from dasklab.terminal import counted


@dataclass(frozen=True)
class HeldData:
    """The most that workers held, and what there was space for. Sizes are in bytes.

    Attributes:
        most: results on all workers at one time, in memory and on disk.
        limit: of a worker's memory; infinite where it has none or it was not recorded.
        other: what a worker's process takes besides results, at least.
    """

    most: float
    limit: float
    other: float

    def fits(self, workers: int) -> bool:
        """Whether so many workers have space for it."""
        return self.most <= workers * (self.limit - self.other)

    @property
    def note(self) -> str:
        return f"Too small are sizes that could not hold its {self._sizes}"

    def warning(self, workers: int) -> str:
        """Say that so many workers have no space for it."""
        number = counted(workers, "worker")
        return f"{number} could not hold the {self._sizes} What a worker does then is not simulated."

    @property
    def _sizes(self) -> str:
        return (
            f"{self.most / 1e9:.3g} GB of results in memory: a worker has {self.limit / 1e9:.3g} GB, of which"
            f" its process takes {self.other / 1e9:.2g} GB without any."
        )


def held_data(workers: Sequence[WorkerMemory], start: float, stop: float) -> HeldData:
    """Return what workers held between two times, from their heartbeats."""
    times = [own.time[(own.time >= start) & (own.time <= stop)] for own in workers]
    every = np.unique(np.concatenate([*times, np.zeros(0)]))
    if not len(every):
        return HeldData(0.0, np.inf, 0.0)
    most = np.zeros(len(every))
    for own in workers:
        row = np.searchsorted(own.time, every, side="right") - 1
        data_bytes = np.nan_to_num(own.managed) + np.nan_to_num(own.spilled)
        most += np.where(row >= 0, data_bytes[np.maximum(row, 0)], 0.0)
    limit = min(float(np.min(own.limit)) for own in workers)  # NaN if any has none
    other = min(float(np.min(own.process - own.managed)) for own in workers)
    return HeldData(float(most.max()), limit if limit > 0 else np.inf, max(0.0, other))
