"""Which experiments a lab can run with guests of one kind: read off their plans, nothing is tried."""

from __future__ import annotations

from dasklab.errors import LabError
from dasklab.model import experiment
from dasklab.model.impairments import needs_netem, queued
from dasklab.model.nic import GuestKind
from dasklab.model.trial import Setup, Trial
from dasklab.running.trials import plan


def able(setup: Setup, kind: GuestKind) -> list[str]:
    """Lines for people: what runs, what runs in part, what asks the kernel for impairments."""
    lab = setup.of_kind(kind)
    plans = {name: _trials(name, lab) for name in experiment.names()}
    whole = [name for name, trials in plans.items() if trials and not any(t.unsupported for t in trials)]
    parts = {name: trials for name, trials in plans.items() if any(t.unsupported for t in trials)}
    netem = [name for name, trials in plans.items() if any(_needs_netem(trial) for trial in trials)]
    told = [f"experiments on guests of kind {kind}: {len(whole)} of {len(plans)} as they are"]
    told += [_part(name, trials) for name, trials in parts.items()]
    told += [f"{name}: more workers than the inventory has" for name, trials in plans.items() if not trials]
    return [
        *told,
        f"these need netem in the guests' kernel, a container's is its host's: {', '.join(netem)}",
    ]


def _part(name: str, trials: list[Trial]) -> str:
    cells = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    lost = {cell: why for cell, why in cells.items() if why}
    return f"{name}: {len(cells) - len(lost)} of {len(cells)} cells; not {', '.join(sorted(lost))}"


def _needs_netem(trial: Trial) -> bool:
    return any(needs_netem(queued(link.model_dump())) for link in trial.links.values())


def _trials(name: str, lab: Setup) -> list[Trial]:
    """The trials of one block; none where the lab has too few workers."""
    try:
        return [trial for trial in plan(*experiment.load(name, quick=False), lab) if trial.block == 1]
    except LabError:
        return []
