"""From an experiment to its trials, in the order they will run: the same file and seed give the same list.

Every block holds each cell once and the null trial, an exact copy of the baseline, shuffled. An experiment
without factors compares nothing: it has no null trial.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, Field

from lab.errors import LabError
from lab.model.experiment import Experiment, Scalar, Settings, expand, settings

OVERHEAD_S = 55.0  # a trial's set-up and tear-down on emulated machines, a fresh cluster included
CAPTURE_S = 55.0  # what a run of its own for the capture adds: another cluster, and the files
CAPTURED_RUNS = 3  # at most, as playbooks/tasks/capture.yml has it
PING_INTERVAL_S = 0.2


class Trial(Settings):
    """What is asked of the lab in one trial: the content of trial.json. Hosts are named, aliases are gone."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    schema_: int = Field(default=1, alias="schema")
    experiment: str
    trial: str
    cell: str
    block: int
    baseline: bool
    null: bool
    factors: dict[str, Scalar]


def plan(name: str, experiment: Experiment, seed: int | None = None, only: str | None = None) -> list[Trial]:
    """All trials in their order; with ``only`` the baseline, the null trial and that cell of each block."""
    every = list(_levels(experiment))
    baseline = every[0]
    kept = every if only is None else _only(experiment, every, only)
    trials: list[Trial] = []
    for block in range(1, experiment.blocks + 1):
        asked = [(cell, False) for cell in kept] + [(baseline, True)] * bool(experiment.factors)
        random.Random(f"{experiment.seed if seed is None else seed}/{block}").shuffle(asked)
        trials += [
            _trial(name, experiment, cell, block, place, cell == baseline, null)
            for place, (cell, null) in enumerate(asked, start=1)
        ]
    return trials


def estimate_s(trial: Trial, run_s: float) -> float:
    """Seconds that the trial will take if one run takes ``run_s``; links are probed one after the other."""
    links = trial.workers + 1
    probes = trial.probes.pings * PING_INTERVAL_S + links * trial.probes.iperf_runs * trial.probes.iperf_s
    capture_s = CAPTURE_S + min(trial.runs, CAPTURED_RUNS) * run_s if trial.capture else 0
    return OVERHEAD_S + (trial.runs + trial.warmups) * run_s + 2 * probes + capture_s


def cells(experiment: Experiment) -> list[str]:
    """The names of all cells, in the file's order; the first is the baseline."""
    return [cell_name(dict(zip(experiment.factors, levels, strict=True))) for levels in _levels(experiment)]


def cell_name(factors: dict[str, Any]) -> str:
    """How a cell is called: ``delay_ms=50``, ``rate_mbit=100,delay_ms=50``; without factors ``baseline``."""
    return ",".join(f"{factor}={level}" for factor, level in factors.items()) or "baseline"


def _levels(experiment: Experiment) -> Iterator[tuple[Scalar, ...]]:
    return itertools.product(*(factor.overrides() for factor in experiment.factors.values()))


def _only(experiment: Experiment, every: list[Any], only: str) -> list[Any]:
    named = dict(zip(cells(experiment), every, strict=True))
    if only not in named:
        raise LabError(f"no cell {only!r}; allowed: {'; '.join(named)}")
    return list(dict.fromkeys([every[0], named[only]]))


def _trial(
    name: str,
    experiment: Experiment,
    cell: tuple[Scalar, ...],
    block: int,
    place: int,
    base: bool,
    null: bool,
) -> Trial:
    factors = dict(zip(experiment.factors, cell, strict=True))
    overrides = [experiment.factors[factor].overrides()[level] for factor, level in factors.items()]
    where = f"{name}: {cell_name(factors)}"
    asked = settings(experiment, overrides, where)
    links = expand(asked.links, asked.workers, f"{where}: links")
    slug = re.sub(r"[^\w.=,-]+", "-", "null" if null else cell_name(factors))
    return Trial(
        experiment=name,
        trial=f"{block}-{place:02}-{slug}",
        cell=cell_name(factors),
        block=block,
        baseline=base and not null,
        null=null,
        factors=factors,
        **dict(asked)
        | {
            "links": {host: link for host, link in links.items() if not link.clear},
            "nics": expand(asked.nics, asked.workers, f"{where}: nics"),
        },
    )
