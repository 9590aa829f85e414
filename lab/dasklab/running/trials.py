"""From an experiment to its trials, in the order they will run: the same file and seed give the same list.

Every block holds each cell once and the null trial, an exact copy of the baseline, shuffled. An experiment
without factors compares nothing: it has no null trial.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from dasklab.errors import LabError, did_you_mean
from dasklab.model import packages
from dasklab.model.cells import Cell, cell_name, cells, factors, names
from dasklab.model.experiment import Experiment, Settings, Shared, hosts, settings
from dasklab.model.nic import GuestKind
from dasklab.model.trial import Setup, Trial

# A trial's set-up and tear-down, a fresh cluster included; and what a run of its own for the capture adds:
# another cluster, and the files. Of machines when they are emulated.
OVERHEAD_S: Mapping[GuestKind, float] = {"vm": 55.0, "container": 13.0}
CAPTURE_S: Mapping[GuestKind, float] = {"vm": 55.0, "container": 9.0}
PREPARING_S = 1800.0  # at most: machines made anew and configured, probes, reset, all on emulated machines
SIMULATED_S = 10.0  # a few seeds on two cores


def plan(
    name: str, experiment: Experiment, setup: Setup, *, seed: int | None = None, only: str | None = None
) -> list[Trial]:
    """All trials in their order; with ``only`` the baseline, the null trial and that cell of each block.

    The baseline is the first cell that this lab can do: a lab of containers has a NIC of its own.
    """
    all_cells = cells(experiment)
    can = (cell for cell in all_cells if not any(setup.cannot(asked_of(name, experiment, cell))))
    baseline = next(can, all_cells[0])
    kept = all_cells if only is None else list(dict.fromkeys([baseline, _named(experiment, only)]))
    used = experiment.seed if seed is None else seed
    trials: list[Trial] = []
    for block in range(1, experiment.blocks + 1):
        asked = [(cell, False) for cell in kept] + [(baseline, True)] * bool(experiment.factors)
        random.Random(f"{used}/{block}").shuffle(asked)
        for place, (cell, null) in enumerate(asked, start=1):
            called = cell_name(factors(experiment, cell))
            slug = re.sub(r"[^\w.=,-]+", "-", "null" if null else called)
            where = {"trial": f"{block}-{place:02}-{slug}", "block": block}
            kind = {"baseline": cell == baseline and not null, "null": null}
            dice = random.Random(f"{used}/{block}/{called}/{null}")
            trials.append(resolve(name, experiment, cell, setup, dice, **where, **kind))
    return trials


def resolve(
    name: str, experiment: Experiment, cell: Cell, setup: Setup, dice: random.Random, **place: Any
) -> Trial:
    """One trial: the settings of a cell laid over the lab as it is; ``place`` is where the trial belongs.

    ``dice`` draw when its faults come: by seed, block and cell, so that the cell alone has the same again.

    Raises:
        LabError: the lab has too few workers.
    """
    levels = factors(experiment, cell)
    where = f"{name}: {cell_name(levels)}"
    asked = asked_of(name, experiment, cell)
    if missing := [host for host in hosts(asked.workers) if host not in setup.hosts]:
        raise LabError(
            f"{where}: {asked.workers} workers are asked, the inventory has no {', '.join(missing)}",
            "add what is missing to the inventory, then: dasklab up",
        )
    links = {host: link for host, link in asked.links.items() if not link.clear}
    return Trial(
        experiment=name,
        cell=cell_name(levels),
        factors=levels,
        links=links,
        guests=setup.asked_guests(asked),
        nics=setup.asked_nics(asked),
        offloads=setup.offloads,
        resolved_scheduler=asked.scheduler.resolve(),
        environment=packages.resolved(
            asked.packages, packages.tools(asked.performance_report, asked.py_spy, asked.engine)
        ),
        tested=tuple(host for host in setup.hosts if host in {**links, **asked.guests, **asked.nics}),
        captured_runs=min(asked.runs, asked.captured_runs) if asked.capture else 0,
        unsupported=tuple(setup.cannot(asked)),
        faults=tuple(fault.drawn(dice) for fault in asked.faults),
        **{key: getattr(asked, key) for key in Shared.model_fields if key != "faults"},
        **place,
    )


def asked_of(name: str, experiment: Experiment, cell: Cell) -> Settings:
    """What a cell asks for, the inventory aside; links, guests and NICs by host."""
    levels = factors(experiment, cell)
    overrides = [experiment.factors[factor].overrides()[level] for factor, level in levels.items()]
    return settings(experiment, overrides, f"{name}: {cell_name(levels)}")


def estimate_s(trial: Trial, run_s: float, simulated: bool = False) -> float:
    """Seconds that the trial will take if one run takes ``run_s``; links are probed one after the other.

    Of a simulated trial that is only a guess, whatever a run takes.
    """
    if simulated:
        return SIMULATED_S
    kind: GuestKind = "vm" if "vm" in trial.guests.values() else "container"
    links, asked = trial.workers + 1, trial.probes
    probes = asked.pings * asked.interval_s + links * asked.iperf_runs * asked.iperf_s
    capture_s = CAPTURE_S[kind] + trial.captured_runs * run_s if trial.capture else 0
    return OVERHEAD_S[kind] + (trial.runs + trial.warmups) * run_s + 2 * probes + capture_s


def deadline_s(trial: Trial) -> float:
    """Seconds after which a trial will not end by itself any more.

    Each cluster that it starts, for the runs and for whatever is a run of its own, lives for ``ttl_s``.
    """
    clusters = 1 + sum((trial.capture, trial.performance_report, trial.py_spy))
    return PREPARING_S + clusters * trial.ttl_s


def _named(experiment: Experiment, only: str) -> Cell:
    named = dict(zip(names(experiment), cells(experiment), strict=True))
    if only not in named:
        raise LabError(f"no cell {only!r}; allowed: {'; '.join(named)}{did_you_mean(only, named)}")
    return named[only]
