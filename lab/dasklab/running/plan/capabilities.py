"""What a lab can do: which trials of an experiment, and which experiments with guests of one kind.

Containers share the kernel of their node. For a lab with a local endpoint that is this machine's kernel, so
what it lacks is known before anything starts. Virtual machines have a kernel of their own with all features.
"""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.errors import LabError
from dasklab.machines import local_host
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.model.experiments import experiment
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.settings.impairments import kernel_features
from dasklab.model.settings.nic import GuestKind
from dasklab.running.plan.setup import setup_of
from dasklab.running.plan.trials import plan

MAX_NAMED_CELLS = 6


def setup_for(lab: Inventory, name: str, content: Experiment) -> Setup:
    """Return the lab's setup; with what its containers' kernel lacks, if the experiment needs any.

    Raises:
        LabError: a value of the inventory is not allowed, or this machine could not be checked.
    """
    setup = setup_of(lab)
    if not any(_needs_kernel(trial) for trial in plan(name, content, setup)):
        return setup
    return with_kernel(setup, local_host.check(lab, ("container",)))


def with_kernel(setup: Setup, checked: local_host.HostCheck | None) -> Setup:
    """Return the setup with what the check says about the containers' kernel."""
    lacks = {"container": checked.kernel_lacks} if checked and checked.kernel_lacks else {}
    return setup.model_copy(update={"kernel_lacks": lacks})


def require_supported(name: str, trials: Sequence[RequestedTrial], *, skip_unsupported: bool = False) -> None:
    """Refuse an experiment whose cells this lab cannot run.

    Args:
        name: the experiment's name.
        trials: its plan.
        skip_unsupported: accept it if other cells remain that can be compared.

    Raises:
        LabError: naming cells and reasons.
    """
    cells = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    refused = {cell: reasons for cell, reasons in cells.items() if reasons}
    remaining = len(cells) - len(refused)
    compares = remaining > 1 or len(cells) == 1
    if not refused or (skip_unsupported and remaining and compares):
        return
    by_reason: dict[str, list[str]] = {}
    for cell, reasons in refused.items():
        by_reason.setdefault("; ".join(reasons), []).append(cell)
    texts = [f"{_names(cells)} cannot run here: {reason}" for reason, cells in by_reason.items()]
    hint = f"to run the other {remaining} of {len(cells)} cells: --skip-unsupported" if compares else None
    raise LabError(f"{name}: {'. '.join(texts)}", hint if remaining else None)


def _names(cells: list[str]) -> str:
    more = f" and {len(cells) - MAX_NAMED_CELLS} more cells" if len(cells) > MAX_NAMED_CELLS else ""
    return ", ".join(cells[:MAX_NAMED_CELLS]) + more


def supported_experiments(setup: Setup, kind: GuestKind) -> list[str]:
    """Return lines to print: experiments supported in full, in part, and those that need netem."""
    lab = setup.for_kind(kind)
    plans = {name: _first_block(name, lab) for name in experiment.names()}
    partial = {name: trials for name, trials in plans.items() if any(t.unsupported for t in trials)}
    without_cells = [name for name, trials in partial.items() if not _has_comparison(trials)]
    too_large = [name for name, trials in plans.items() if not trials]
    complete = len(plans) - len(partial) - len(too_large)
    return [
        f"guests of kind {kind} support {complete} of {len(plans)} experiments in full",
        *(_partial_support(name, trials) for name, trials in partial.items() if name not in without_cells),
        *(f"{name}: needs more workers than the inventory has" for name in too_large),
        *_refused({name: partial[name] for name in without_cells}),
        *_unknown(lab, kind, plans),
    ]


def _refused(plans: dict[str, list[RequestedTrial]]) -> list[str]:
    """Return a line for each reason why experiments have no cell that could be compared."""
    by_reason: dict[str, list[str]] = {}
    for name, trials in plans.items():
        reasons = dict.fromkeys(reason for trial in trials for reason in trial.unsupported)
        by_reason.setdefault("; ".join(reasons), []).append(name)
    return [f"not {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _unknown(lab: Setup, kind: GuestKind, plans: dict[str, list[RequestedTrial]]) -> list[str]:
    """Return a line with the experiments that need what only the guests' kernel knows."""
    if kind == "vm" or lab.kernel_lacks:
        return []
    names = [name for name, trials in plans.items() if any(_needs_kernel(trial) for trial in trials)]
    return [f"need netem in the node's kernel: {', '.join(names)}"] if names else []


def _partial_support(name: str, trials: list[RequestedTrial]) -> str:
    cells = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    unsupported = sorted(cell for cell, reasons in cells.items() if reasons)
    return f"{name}: {len(cells) - len(unsupported)} of {len(cells)} cells; not {', '.join(unsupported)}"


def _has_comparison(trials: list[RequestedTrial]) -> bool:
    """Whether this lab can run a cell besides the baseline."""
    return len({trial.cell for trial in trials if not trial.unsupported}) > 1


def _needs_kernel(trial: RequestedTrial) -> bool:
    """Whether a container of this trial needs a feature that its kernel may lack."""
    return any(
        kernel_features(link.model_dump())
        for host, link in trial.links.items()
        if trial.guests.get(host) == "container"
    )


def _first_block(name: str, lab: Setup) -> list[RequestedTrial]:
    """Return the trials of an experiment's first block; none if the lab has too few workers."""
    try:
        return [trial for trial in plan(*experiment.load(name, quick=False), lab) if trial.block == 1]
    except LabError:
        return []
