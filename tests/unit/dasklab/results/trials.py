"""Trials with given settings and the files that they leave, for tests of verdicts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from dasklab.model.experiments.experiment import Experiment, Tolerances
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.files import Configured, Measured
from dasklab.results.validity import measured, verdict
from dasklab.running.plan.trials import plan

from tests.unit.dasklab.conftest import SETUP, Json, answers

EXPERIMENT: Json = {"title": "", "question": "", "metrics": {"compute_s": None}}
Change = Callable[[Json], object]


def trial(setup: Setup = SETUP, **settings: Any) -> RequestedTrial:
    """Return the first trial of an experiment with these settings."""
    return plan("x", Experiment.model_validate(EXPERIMENT | settings), setup)[0]


def files_of(trial: RequestedTrial, seed: int = 1) -> Json:
    """Return the files of a trial in which everything was as requested, by name."""
    return answers(json.loads(trial.to_json()), 1.0, random.Random(seed))


def host(files: Json, name: str) -> Json:
    """Return what was read back of a host."""
    return files["configured.json"]["hosts"][name]


def link_reasons(change: Change = lambda files: None, **settings: Any) -> list[str]:
    """Return why the links of a trial are not as requested, after a change of its files.

    The baseline is a trial without settings.
    """
    base, changed = trial(), trial(**settings)
    base_files, files = files_of(base), files_of(changed, seed=2)
    change(files)
    reference = measured.baseline(base, [Measured.model_validate(base_files["measured.json"])])
    configured = Configured.model_validate(files["configured.json"])
    probes = Measured.model_validate(files["measured.json"])
    return verdict.link_reasons(changed, configured, probes, reference, Tolerances())
