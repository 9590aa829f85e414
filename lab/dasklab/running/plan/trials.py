"""Plan the trials of an experiment. The same experiment and seed always give the same list.

Each block contains every cell once and the null trial (an exact copy of the baseline), in random order. Only
trials with the same kinds of guest follow each other, in groups of random order, because another kind means
that machines are created and configured again. An experiment without factors has no null trial, because it
compares nothing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from dasklab.errors import LabError, did_you_mean
from dasklab.model.experiments.cells import Cell, cell_name, cell_names, cells, levels_of
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.experiment import settings as merged_settings
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.settings import packages
from dasklab.model.settings.hosts import host_names
from dasklab.model.settings.nic import GuestKind
from dasklab.model.settings.trial_settings import Settings, SharedSettings

# Set-up and tear-down of a trial with its fresh cluster, and what the separate capture adds (another
# cluster and its files). Values for virtual machines were measured under emulation.
OVERHEAD_S: Mapping[GuestKind, float] = {"vm": 55.0, "container": 13.0}
CAPTURE_S: Mapping[GuestKind, float] = {"vm": 55.0, "container": 9.0}
PREPARATION_LIMIT_S = 1800.0  # recreate and configure machines, probe and reset, under emulation
SIMULATED_TRIAL_S = 10.0  # a few seeds on two cores


def plan(
    name: str, experiment: Experiment, setup: Setup, *, seed: int | None = None, only: str | None = None
) -> list[RequestedTrial]:
    """Return all trials in the order in which they will run.

    The baseline is the first cell that this lab supports, because a lab of containers has other NICs.

    Args:
        name: the experiment's name.
        experiment: its content.
        setup: the lab as its inventory describes it.
        seed: replaces the experiment's seed.
        only: the name of a cell; the plan then has only this cell, the baseline and the null trial.
    """
    all_cells = cells(experiment)
    supported = (cell for cell in all_cells if not any(setup.unsupported(requested(name, experiment, cell))))
    baseline = next(supported, all_cells[0])
    chosen = all_cells if only is None else list(dict.fromkeys([baseline, _cell_by_name(experiment, only)]))
    seed = experiment.seed if seed is None else seed
    trials: list[RequestedTrial] = []
    for block in range(1, experiment.blocks + 1):
        order = [(cell, False) for cell in chosen] + [(baseline, True)] * bool(experiment.factors)
        random.Random(f"{seed}/{block}").shuffle(order)
        groups: dict[object, list[tuple[Cell, bool]]] = {}
        for cell, null in order:
            guests = setup.requested_guests(requested(name, experiment, cell))
            groups.setdefault(tuple(guests.items()), []).append((cell, null))
        for place, (cell, null) in enumerate(chain.from_iterable(groups.values()), start=1):
            label = cell_name(levels_of(experiment, cell))
            slug = re.sub(r"[^\w.=,-]+", "-", "null" if null else label)
            identity = {"trial": f"{block}-{place:02}-{slug}", "block": block}
            kind = {"baseline": cell == baseline and not null, "null": null}
            dice = random.Random(f"{seed}/{block}/{label}/{null}")
            trials.append(resolve(name, experiment, cell, setup, dice, **identity, **kind))
    return trials


def resolve(
    name: str, experiment: Experiment, cell: Cell, setup: Setup, dice: random.Random, **identity: Any
) -> RequestedTrial:
    """Return one trial: the lab's setup with the settings of a cell applied.

    Args:
        name: the experiment's name.
        experiment: its content.
        cell: the cell that the trial measures.
        setup: the lab as its inventory describes it.
        dice: draws the times of faults. Seeded by seed, block and cell, so that a cell alone gets them again.
        identity: the trial's name, block, and whether it is the baseline or the null trial.

    Raises:
        LabError: the lab has too few workers.
    """
    levels = levels_of(experiment, cell)
    settings = requested(name, experiment, cell)
    if missing := [host for host in host_names(settings.workers) if host not in setup.hosts]:
        raise LabError(
            f"{name}: {cell_name(levels)}: needs {settings.workers} workers, but the inventory has no"
            f" {', '.join(missing)}",
            "add the missing hosts to the inventory, then: dasklab up",
        )
    links = {host: link for host, link in settings.links.items() if not link.clear}
    return RequestedTrial(
        experiment=name,
        cell=cell_name(levels),
        factors=levels,
        links=links,
        guests=setup.requested_guests(settings),
        nics=setup.requested_nics(settings),
        offloads=setup.offloads,
        resolved_scheduler=settings.scheduler.resolve(),
        environment=packages.unpinned(settings.packages, _extra_packages(settings)),
        tested=tuple(host for host in setup.hosts if host in {**links, **settings.guests, **settings.nics}),
        captured_repeats=min(settings.repeats, settings.captured_repeats) if settings.capture else 0,
        unsupported=tuple(setup.unsupported(settings)),
        faults=tuple(fault.at_moment(dice) for fault in settings.faults),
        **{key: getattr(settings, key) for key in SharedSettings.model_fields if key != "faults"},
        **identity,
    )


def _extra_packages(settings: Settings) -> dict[str, str]:
    return packages.extra_packages(settings.performance_report, settings.py_spy, settings.engine)


def requested(name: str, experiment: Experiment, cell: Cell) -> Settings:
    """Return the settings that a cell requests. Links, guests and NICs are by host."""
    levels = levels_of(experiment, cell)
    overrides = [experiment.factors[factor].overrides()[level] for factor, level in levels.items()]
    return merged_settings(experiment, overrides, f"{name}: {cell_name(levels)}")


def estimate_s(trial: RequestedTrial, repeat_s: float, simulated: bool = False) -> float:
    """Estimate how long a trial will take, in seconds.

    Args:
        trial: the trial.
        repeat_s: how long one repeat of its workload takes. Links are probed one after the other.
        simulated: whether it is simulated; the estimate is then a constant.
    """
    if trial.unsupported:
        return 0.0
    if simulated:
        return SIMULATED_TRIAL_S
    kind: GuestKind = "vm" if "vm" in trial.guests.values() else "container"
    links, probes = trial.workers + 1, trial.probes
    probing_s = probes.pings * probes.interval_s + links * probes.iperf_runs * probes.iperf_s
    capture_s = CAPTURE_S[kind] + trial.captured_repeats * repeat_s if trial.capture else 0
    return OVERHEAD_S[kind] + (trial.repeats + trial.warmups) * repeat_s + 2 * probing_s + capture_s


def deadline_s(trial: RequestedTrial) -> float:
    """Return after how many seconds a trial must be hanging.

    A trial starts a cluster for its repeats and one more for each separate purpose (capture, performance
    report, py-spy). Each cluster lives for at most ``ttl_s``.
    """
    clusters = 1 + sum((trial.capture, trial.performance_report, trial.py_spy))
    return PREPARATION_LIMIT_S + clusters * trial.ttl_s


def _cell_by_name(experiment: Experiment, name: str) -> Cell:
    by_name = dict(zip(cell_names(experiment), cells(experiment), strict=True))
    if name not in by_name:
        raise LabError(f"no cell {name!r}; allowed: {'; '.join(by_name)}{did_you_mean(name, by_name)}")
    return by_name[name]
