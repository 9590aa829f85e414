"""How long each stage of a task took, for most tasks. A faster link shortens only stages that contain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.model.stages import STAGES


@dataclass(frozen=True)
class StageLength:
    """The 10th, 50th and 90th percentile of the length of a stage, in milliseconds."""

    title: str
    low_ms: float
    median_ms: float
    high_ms: float
    moves_with_link: bool


def stage_lengths(repeats: Sequence[Repeat]) -> Iterator[StageLength]:
    """Return the stages that were recorded, and in a last row all of them together."""
    stages = [
        (f"{stage.place.value}: {stage.title}", stage.start, stage.stop, stage.moves_with_link)
        for stage in STAGES
    ]
    for title, start, stop, moves_with_link in (
        *stages,
        ("together", STAGES[0].start, STAGES[-1].stop, True),
    ):
        parts = [repeat.tasks.stamps[stop] - repeat.tasks.stamps[start] for repeat in repeats]
        lengths = np.concatenate([np.zeros(0), *parts])
        lengths = lengths[~np.isnan(lengths)]
        if len(lengths):
            low, median, high = (float(q) for q in 1e3 * np.quantile(lengths, (0.1, 0.5, 0.9)))
            yield StageLength(title, low, median, high, moves_with_link)
