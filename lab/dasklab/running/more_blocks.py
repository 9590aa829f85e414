"""Give a run more blocks: by number, or one after the other until its intervals are narrow enough.

Blocks are planned one by one from the seed, so a run of three blocks is the beginning of the same run of
four.

Stopping as soon as an interval is narrow would stop too early: it is narrowest when its noise is
underestimated. So the interval has to be narrow enough twice in a row, with the last block and without it,
and four blocks are the least.
``benchmarks/statistics_simulated.py`` checks that coverage and error rate survive this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.results.statistics.measures import Answer, Interval, answers
from dasklab.results.storage import store
from dasklab.results.storage.table import load
from dasklab.running.driver import Ongoing
from dasklab.running.trials import plan

LEAST_BLOCKS, MOST_BLOCKS = 4, 12


@dataclass(frozen=True)
class Until:
    """How narrow the main metric's intervals should become, as a share of each ratio, and the most blocks."""

    share: float
    most: int = MOST_BLOCKS


def with_blocks(content: Experiment, blocks: int) -> Experiment:
    """The same experiment with another number of blocks."""
    return content.model_copy(update={"blocks": blocks})


def extended(run: Ongoing, blocks: int) -> Ongoing:
    """The run as it is with so many blocks; nothing is written.

    Raises:
        LabError: it has as many already.
    """
    begun, now = store.read_run(run.directory), run.experiment.blocks
    if blocks < now:
        raise LabError(f"{run.directory}: it has {now} blocks already", f"--blocks {now + 1}, or more")
    content = with_blocks(run.experiment, blocks)
    trials = plan(begun.name, content, run.setup, seed=begun.seed, only=begun.only)
    return replace(run, experiment=content, trials=trials)


def record(run: Ongoing) -> None:
    """Write down in the run's directory that it goes on with these blocks."""
    begun = store.read_run(run.directory)
    content = begun.experiment | {"blocks": run.experiment.blocks}
    order = tuple(trial.trial for trial in run.trials)
    store.write(run.directory, begun.model_copy(update={"experiment": content, "order": order}))


def next_block(run: Ongoing, until: Until) -> Ongoing | None:
    """The run with one block more; None if its intervals are narrow enough, or it has the most blocks."""
    blocks = run.experiment.blocks
    if blocks >= until.most or (blocks >= LEAST_BLOCKS and is_narrow(run.directory, blocks, until.share)):
        return None
    return extended(run, blocks + 1)


def is_narrow(directory: Path, blocks: int, share: float) -> bool:
    """Are the main metric's intervals narrow enough, with the last block and without it?"""
    frame, metrics = load(directory), list(store.read_run(directory).experiment["metrics"])
    return all(width(frame[frame.block <= last], metrics) <= share for last in (blocks, blocks - 1))


def width(frame: pd.DataFrame, metrics: list[str]) -> float:
    """How far any ratio to the baseline (without factors, the median) may be off, as a share of it."""
    found = answers(frame, metrics)[metrics[0]]
    return max(map(_reach, _intervals(found))) if found else math.inf


def _intervals(found: Answer) -> list[Interval]:
    ratios = [cell.ratio for cell in found.cells if not cell.baseline]
    return ratios or [found.cells[0].median]


def _reach(interval: Interval) -> float:
    if not interval.value or math.isnan(interval.low):
        return math.inf
    return max(interval.high - interval.value, interval.value - interval.low) / abs(interval.value)
