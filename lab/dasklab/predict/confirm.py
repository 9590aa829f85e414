"""Confirm candidates in the lab: the experiment that compares them with the unchanged trial, and its verdict.

Only what the lab confirms is advice: it saves time, and more than chance produces among as many candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment, check, merge
from dasklab.model.files import Campaign
from dasklab.model.trial import Trial
from dasklab.predict.advice import Candidate
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answer
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import cached, store

NAME = "advice"  # of the experiment, and of its file beside the trial
FACTOR, UNCHANGED, METRIC = "change", "unchanged", "compute_s"
NOT_COPIED = ("performance_report", "py_spy", "capture")  # settings of the trial's experiment


@dataclass(frozen=True)
class Confirmation:
    """The lab's verdict on a candidate.

    Attributes:
        gain: the share of the time that it saves; NaN without a valid trial.
        confirmed: the gain is shown.
    """

    name: str
    settings: Mapping[str, Any]
    gain: Interval
    confirmed: bool


@dataclass(frozen=True)
class Confirmations:
    """The verdicts on all candidates, the best first.

    Attributes:
        noise_floor: the smallest share of the time that would be shown.
    """

    candidates: tuple[Confirmation, ...]
    noise_floor: float


def measured_run(directory: Path) -> Campaign:
    """Return the run of a trial, which has the trial's experiment.

    Raises:
        LabError: the trial is in no run, or in a simulated one.
    """
    if not (directory.parent / Campaign.FILE).exists():
        raise LabError(f"{directory}: the trial is not in the directory of a run, so it cannot be repeated")
    run = store.read_run(directory.parent)
    if run.setup.simulated:
        raise LabError(f"{directory}: this trial was simulated; advice needs a measured trial")
    return run


def experiment(
    run: Campaign, trial: Trial, candidates: Sequence[Candidate], *, runs: int | None, blocks: int | None
) -> Experiment:
    """Return the experiment that compares candidates with the unchanged trial (and with its null trial).

    Args:
        run: the trial's run.
        trial: its settings are those of all cells.
        candidates: each is a level of the only factor.
        runs: runs of each trial; None: as many as the trial had.
        blocks: blocks; None: as many as the trial's experiment has.

    Raises:
        LabError: this version does not understand the trial's experiment.
    """
    origin = store.experiment(run)
    raw = origin.shared()
    for factor, level in trial.factors.items():
        raw = merge(raw, origin.factors[factor].overrides()[level])
    levels = {UNCHANGED: {}, **{candidate.name: candidate.changes for candidate in candidates}}
    content = {
        "title": f"Advice for {trial.experiment}, {trial.cell}",
        "question": "Do the settings that helped in simulation help in the lab?",
        "metrics": {METRIC: None, "transfer_mb": None},
        "factors": {FACTOR: {"levels": levels}},
        **{key: value for key, value in raw.items() if key not in NOT_COPIED},
        "runs": trial.runs if runs is None else runs,
        "blocks": origin.blocks if blocks is None else blocks,
        "run_s": origin.run_s,
        "tolerances": origin.tolerances.model_dump(),
    }
    return check(content, f"{NAME}.yml")


def write(directory: Path, content: Experiment) -> Path:
    """Write the experiment as a file for `dasklab run`."""
    path = cached.writable(directory) / f"{NAME}.yml"
    plain = content.model_dump(mode="json", exclude_unset=True)
    atomic.write_text(path, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    return path


def find_run(root: Path, content: Experiment) -> Path | None:
    """Return the newest run of exactly this experiment, if there is one."""
    plain = content.model_dump(mode="json", exclude_unset=True)
    runs = sorted((path.parent for path in (root / NAME).glob(f"*/{Campaign.FILE}")), reverse=True)
    campaigns = ((run, campaign) for run, campaign in store.for_each_run(runs, store.read_run, strict=False))
    return next((run for run, campaign in campaigns if campaign.experiment == plain), None)


def judge(frame: pd.DataFrame, candidates: Sequence[Candidate]) -> Confirmations:
    """Judge candidates by the samples of the run that measured them.

    Raises:
        LabError: the run has no valid baseline or null trial, so it shows nothing.
    """
    result = answer(frame, METRIC, [FACTOR])
    if result is None or result.null is None:
        missing = "baseline" if result is None else "null trial"
        raise LabError(
            f"no valid {missing}: nothing is confirmed", "dasklab run RUN --again measures it again"
        )
    confirmations = [_confirmation(result, candidate) for candidate in candidates]
    base_s = result.cells[0].median.value
    return Confirmations(tuple(sorted(confirmations, key=_loss)), result.noise_floor / base_s)


def _loss(confirmation: Confirmation) -> float:
    return math.inf if math.isnan(confirmation.gain.value) else -confirmation.gain.value


def _confirmation(result: Answer, candidate: Candidate) -> Confirmation:
    cell = result.cell(f"{FACTOR}={candidate.name}")
    if cell is None:
        return Confirmation(candidate.name, dict(candidate.settings), Interval(math.nan), confirmed=False)
    ratio = cell.ratio
    gain = Interval(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    return Confirmation(candidate.name, dict(candidate.settings), gain, cell.is_shown and gain.low > 0)
