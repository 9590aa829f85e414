"""Tables of samples whose truth is known, for tests of statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answer

WITHIN, BETWEEN, DRIFT = 0.059, 0.067, 0.1  # standard deviations of log(compute_s), measured on containers
VALID = {
    "metric": "compute_s",
    "warmup": False,
    "status": "ok",
    "tested": True,
    "prediction_error": 0.0,
    "src": "",
    "dst": "",
}


def one_factor(
    random: np.random.Generator,
    levels: int = 2,
    blocks: int = 2,
    repeats: int = 3,
    effect: float = 0.0,
    between: float = BETWEEN,
) -> pd.DataFrame:
    """Draw the table of an experiment with one factor.

    Args:
        random: the source of noise.
        levels: the number of levels.
        blocks: the number of blocks.
        repeats: the number of repeats per trial.
        effect: the logarithm of what level 1 takes, divided by the baseline.
        between: the standard deviation between trials; all repeats of a trial share it.
    """
    rows = []
    for block in range(blocks):
        drift = random.normal(0, DRIFT)
        for level, null in [*((level, False) for level in range(levels)), (0, True)]:
            mean = drift + effect * (level == 1) + random.normal(0, between)
            for value in np.exp(mean + random.normal(0, WITHIN, repeats)):
                rows.append((block, level, level == 0 and not null, null, value))
    frame = pd.DataFrame(rows, columns=["block", "level", "baseline", "null", "value"])
    frame = frame.assign(cell="level=" + frame.level.astype(str), workload="w", **VALID)
    frame["level"] = frame.level.astype(str)
    frame.attrs["factors"] = ["level"]
    return frame


def experiments(count: int, **design: float) -> list[Answer]:
    """Draw experiments with one factor, always the same ones, and return their answers."""
    random = np.random.default_rng(7)
    results = [answer(one_factor(random, **design), "compute_s", ["level"]) for _ in range(count)]
    return [result for result in results if result]


def two_workloads() -> pd.DataFrame:
    """Three samples of each cell. With a cap merge takes x 2, groupby x 1.5."""
    seconds = {("merge", 0): 1.0, ("merge", 50): 2.0, ("groupby", 0): 10.0, ("groupby", 50): 15.0}
    rows = [
        (block, work, rate, work == "merge" and not rate, null, value * jitter * shift)
        for (work, rate), value in seconds.items()
        for block, shift in ((1, 1.0), (2, 1.003 if rate else 0.997), (3, 1.001))
        for jitter in (0.99, 1.0, 1.01)
        for null in ((False, True) if (work, rate) == ("merge", 0) else (False,))
    ]
    frame = pd.DataFrame(rows, columns=["block", "workload", "rate_mbit", "baseline", "null", "value"])
    frame.loc[frame.null, "value"] += 0.05
    frame["baseline"] &= ~frame.null
    cell = "work=" + frame.workload + ",rate_mbit=" + frame.rate_mbit.astype(str)
    return frame.assign(work=frame.workload, cell=cell, **VALID)
