"""Add blocks to a run: a number of them, or one after the other until its intervals are narrow enough.

Each block is planned from the seed and its number, so a run with three blocks equals the first three blocks
of the same run with four.

Stopping as soon as an interval is narrow would stop too early: an interval is narrowest when its noise is
underestimated. So there are at least four blocks, and the interval must be narrow enough twice: with the last
block and without it. ``benchmarks/statistics_simulated.py`` checks coverage and error rate of this rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.results.run import Run
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import Interval
from dasklab.results.table import table
from dasklab.running.driver.driver import ActiveRun
from dasklab.running.plan.trials import plan

MIN_BLOCKS, MAX_BLOCKS = 4, 12


@dataclass(frozen=True)
class StopRule:
    """When a run has enough blocks.

    Args:
        share: how far a ratio of the main metric may be off, as a share of the ratio (0.1 is 10 %).
        max_blocks: stop with this many blocks in any case.
    """

    share: float
    max_blocks: int = MAX_BLOCKS


def with_blocks(content: Experiment, blocks: int) -> Experiment:
    """Return the same experiment with another number of blocks."""
    return content.model_copy(update={"blocks": blocks})


def extended(run: ActiveRun, blocks: int) -> ActiveRun:
    """Return the run with ``blocks`` blocks in all. Writes nothing.

    Raises:
        LabError: the run has more blocks already.
    """
    stored, current = run.opened_again().document, run.experiment.blocks
    if blocks < current:
        raise LabError(
            f"{run.stored}: it has {current} blocks already", f"use --blocks {current + 1} or more"
        )
    content = with_blocks(run.experiment, blocks)
    trials = plan(stored.name, content, run.setup, seed=stored.seed, only=stored.only)
    return replace(run, experiment=content, trials=trials)


def record(run: ActiveRun) -> None:
    """Write the run's number of blocks and its trials to its folder."""
    stored = run.opened_again()
    content = stored.document.experiment | {"blocks": run.experiment.blocks}
    order = tuple(trial.trial for trial in run.trials)
    stored.write(stored.document.model_copy(update={"experiment": content, "order": order}))


def next_block(run: ActiveRun, rule: StopRule) -> ActiveRun | None:
    """Return the run with one more block; None if the rule says that it has enough."""
    blocks = run.experiment.blocks
    if blocks >= rule.max_blocks or (
        blocks >= MIN_BLOCKS and is_narrow(run.opened_again(), blocks, rule.share)
    ):
        return None
    return extended(run, blocks + 1)


def is_narrow(run: Run, blocks: int, share: float) -> bool:
    """Return whether the main metric's intervals are narrow enough with the last block and without it."""
    frame, metrics = table(run), run.metrics
    return all(width(frame[frame.block <= last], metrics) <= share for last in (blocks, blocks - 1))


def width(frame: pd.DataFrame, metrics: list[str]) -> float:
    """Return how far any ratio of the main metric to the baseline may be off, as a share of the ratio.

    An experiment without factors has no ratios; its median is used instead.
    """
    answer = answers(frame, metrics)[metrics[0]]
    return max(map(_relative_reach, _intervals(answer))) if answer else math.inf


def _intervals(answer: Answer) -> list[Interval]:
    ratios = [cell.ratio for cell in answer.cells if not cell.baseline]
    return ratios or [answer.cells[0].median]


def _relative_reach(interval: Interval) -> float:
    if not interval.value or math.isnan(interval.low):
        return math.inf
    return max(interval.high - interval.value, interval.value - interval.low) / abs(interval.value)
