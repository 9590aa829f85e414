"""What must be equal for two runs to be comparable: what computed, where, and from where it was simulated."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from dasklab.results.run import Run

PACKAGES = ("python", "dask", "distributed", "numpy")


def identity(run: Run) -> dict[str, Any]:
    """Return what must be equal for two runs to be compared. Versions are those of the baseline."""
    experiment = run.document.experiment
    identity: dict[str, Any] = {"workload": experiment.get("workload")}
    if sources := experiment.get("workload_sources"):
        text = json.dumps(sources, sort_keys=True)
        identity["workload's source"] = hashlib.sha256(text.encode()).hexdigest()[:8]
    baseline_first = sorted(run.trials, key=lambda trial: not trial.requested.baseline)
    if timings := next((trial.timings for trial in baseline_first if trial.timings), None):
        identity |= {package: timings.versions.get(package) for package in PACKAGES}
    return identity | {
        "accelerator": accelerator(run),
        "congestion control": congestion_control(run),
        "simulated from": simulated_from(run),
    }


def simulated_from(run: Run) -> str | None:
    """Return where the costs of a simulated run come from; None for a measured run."""
    return run.simulated.origin if run.simulated else None


def heading_suffix(run: Run) -> str:
    """Return what the heading of each of a run's tables ends with: whether it was simulated."""
    return ", simulated" if simulated_from(run) else ""


def accelerator(run: Run) -> str | None:
    """Return ``kvm`` or ``tcg``, as the first trial that knows it has it; None if none does."""
    return next((trial.hosts.hypervisor.accel for trial in run.trials if trial.hosts), None)


def congestion_control(run: Run) -> str | None:
    """Return TCP's congestion control on all hosts of the first trial that knows it: a name, or several."""
    configured = next((trial.configured for trial in run.trials if trial.configured), None)
    if configured is None:
        return None
    return ", ".join(sorted({host.congestion_control for host in configured.hosts.values()}))
