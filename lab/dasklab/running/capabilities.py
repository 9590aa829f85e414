"""Which experiments a lab supports with guests of one kind, derived from the plans of their trials."""

from __future__ import annotations

from dasklab.errors import LabError
from dasklab.model import experiment
from dasklab.model.impairments import needs_netem, queued
from dasklab.model.nic import GuestKind
from dasklab.model.trial import Setup, Trial
from dasklab.running.trials import plan


def supported_experiments(setup: Setup, kind: GuestKind) -> list[str]:
    """Return lines to print: experiments supported in full, in part, and those that need netem."""
    lab = setup.for_kind(kind)
    plans = {name: _first_block(name, lab) for name in experiment.names()}
    partial = {name: trials for name, trials in plans.items() if any(t.unsupported for t in trials)}
    too_large = [name for name, trials in plans.items() if not trials]
    complete = len(plans) - len(partial) - len(too_large)
    netem = [name for name, trials in plans.items() if any(_needs_netem(trial) for trial in trials)]
    return [
        f"guests of kind {kind} support {complete} of {len(plans)} experiments in full",
        *(_partial_support(name, trials) for name, trials in partial.items()),
        *(f"{name}: needs more workers than the inventory has" for name in too_large),
        f"need netem in the guest's kernel, for a container the host's: {', '.join(netem)}",
    ]


def _partial_support(name: str, trials: list[Trial]) -> str:
    cells = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    unsupported = sorted(cell for cell, reasons in cells.items() if reasons)
    return f"{name}: {len(cells) - len(unsupported)} of {len(cells)} cells; not {', '.join(unsupported)}"


def _needs_netem(trial: Trial) -> bool:
    return any(needs_netem(queued(link.model_dump())) for link in trial.links.values())


def _first_block(name: str, lab: Setup) -> list[Trial]:
    """Return the trials of an experiment's first block; none if the lab has too few workers."""
    try:
        return [trial for trial in plan(*experiment.load(name, quick=False), lab) if trial.block == 1]
    except LabError:
        return []
