"""What simulations say may help, asked of the lab: an experiment of the trial as it was, and of candidates.

Only what the lab confirms is advice: less time, by more than chance makes among as many candidates.
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
from dasklab.results.storage import store

NAME = "advice"  # of the experiment, and of its file beside the trial
FACTOR, AS_IT_WAS, METRIC = "change", "as it was", "compute_s"
NOT_MEANT = ("performance_report", "py_spy", "capture")  # of the experiment that the trial is of


@dataclass(frozen=True)
class Verdict:
    """What the lab says of a candidate: which share of the time it saves, and whether that is shown.

    The gain of one without a valid trial is NaN.
    """

    name: str
    settings: Mapping[str, Any]
    gain: Interval
    confirmed: bool


@dataclass(frozen=True)
class Verdicts:
    """Of all candidates, the best first; ``floor``: the smallest share of the time that would be shown."""

    of: tuple[Verdict, ...]
    floor: float


def measured_run(directory: Path) -> Campaign:
    """The run of a trial, which says what its experiment was.

    Raises:
        LabError: it is in none, or in a simulated one.
    """
    if not (directory.parent / Campaign.FILE).exists():
        raise LabError(f"{directory}: it is not in a run's directory, which would say how to do it again")
    run = store.read_run(directory.parent)
    if run.setup.simulated:
        raise LabError(f"{directory}: it was simulated itself; advice is for measured trials")
    return run


def experiment(
    run: Campaign, trial: Trial, candidates: Sequence[Candidate], *, runs: int | None, blocks: int | None
) -> Experiment:
    """The trial's own settings, and candidates as levels of one factor; the null trial comes by itself.

    Raises:
        LabError: what the trial's experiment says is not understood by this version.
    """
    of = store.experiment(run)
    raw = of.shared()
    for factor, level in trial.factors.items():
        raw = merge(raw, of.factors[factor].overrides()[level])
    kept = {key: value for key, value in raw.items() if key not in NOT_MEANT}
    asked = {
        "title": f"Advice for {trial.experiment}, {trial.cell}",
        "question": "Do the settings that helped in simulation help in the lab?",
        "metrics": {METRIC: None, "transfer_mb": None},
        "factors": {FACTOR: {"levels": {AS_IT_WAS: {}, **{one.name: one.changes for one in candidates}}}},
        **kept,
        "runs": trial.runs if runs is None else runs,
        "blocks": of.blocks if blocks is None else blocks,
        "run_s": of.run_s,
        "tolerances": of.tolerances.model_dump(),
    }
    return check(asked, f"{NAME}.yml")


def write(directory: Path, asked: Experiment) -> Path:
    """As a file that `dasklab run` takes."""
    path = directory / f"{NAME}.yml"
    plain = asked.model_dump(mode="json", exclude_unset=True)
    atomic.write_text(path, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    return path


def begun(root: Path, asked: Experiment) -> Path | None:
    """The newest run of just this experiment, if there is one."""
    plain = asked.model_dump(mode="json", exclude_unset=True)
    runs = sorted((path.parent for path in (root / NAME).glob(f"*/{Campaign.FILE}")), reverse=True)
    begun = ((run, campaign) for run, campaign in store.for_each_run(runs, store.read_run, strict=False))
    return next((run for run, campaign in begun if campaign.experiment == plain), None)


def judge(frame: pd.DataFrame, candidates: Sequence[Candidate]) -> Verdicts:
    """What a run that confirms says.

    Raises:
        LabError: it has no valid baseline or null trial, against which nothing can be told.
    """
    found = answer(frame, METRIC, [FACTOR])
    if found is None or found.null is None:
        missing = "baseline" if found is None else "null trial"
        raise LabError(
            f"no valid {missing}: nothing is confirmed", "dasklab run RUN --again measures it anew"
        )
    verdicts = [_verdict(found, candidate) for candidate in candidates]
    base = found.cells[0].median.value
    return Verdicts(tuple(sorted(verdicts, key=_loss)), found.noise_floor / base)


def _loss(verdict: Verdict) -> float:
    return math.inf if math.isnan(verdict.gain.value) else -verdict.gain.value


def _verdict(found: Answer, candidate: Candidate) -> Verdict:
    cell = found.cell(f"{FACTOR}={candidate.name}")
    if cell is None:
        return Verdict(candidate.name, dict(candidate.settings), Interval(math.nan), confirmed=False)
    times = cell.ratio
    gain = Interval(1 - times.value, 1 - times.high, 1 - times.low)
    return Verdict(candidate.name, dict(candidate.settings), gain, cell.shown and gain.low > 0)
