"""What must be equal for two runs to be comparable: what computed, where, and from where it was simulated."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dasklab.model.files import Configured, Hosts, Timings
from dasklab.model.trial import RequestedTrial
from dasklab.results.storage import store

PACKAGES = ("python", "dask", "distributed", "numpy")


def identity(run: Path) -> dict[str, Any]:
    """Return what must be equal for two runs to be compared. Versions are those of the baseline."""
    experiment = store.read_run(run).experiment
    identity: dict[str, Any] = {"workload": experiment.get("workload")}
    if sources := experiment.get("workload_sources"):
        text = json.dumps(sources, sort_keys=True)
        identity["workload's source"] = hashlib.sha256(text.encode()).hexdigest()[:8]
    baseline_first = sorted(
        store.finished(run), key=lambda trial: not store.need(RequestedTrial, trial).baseline
    )
    for directory in baseline_first:
        if timings := store.read(Timings, directory):
            identity |= {package: timings.versions.get(package) for package in PACKAGES}
            break
    return identity | {
        "accelerator": accelerator(run),
        "congestion control": congestion_control(run),
        "simulated from": simulated_from(run),
    }


def simulated_from(run: Path) -> str | None:
    """Return where the costs of a simulated run come from; None for a measured run."""
    simulated = store.read_run(run).setup.simulated
    return simulated.origin if simulated else None


def heading_suffix(run: Path) -> str:
    """Return what the heading of each of a run's tables ends with: whether it was simulated."""
    return ", simulated" if simulated_from(run) else ""


def accelerator(run: Path) -> str | None:
    """Return ``kvm`` or ``tcg``, as the first trial that knows it has it; None if none does."""
    for directory in store.finished(run):
        if hosts := store.read(Hosts, directory):
            return hosts.hypervisor.accel
    return None


def congestion_control(run: Path) -> str | None:
    """Return TCP's congestion control on all hosts of the first trial that knows it: a name, or several."""
    for directory in store.finished(run):
        if configured := store.read(Configured, directory):
            return ", ".join(sorted({host.congestion_control for host in configured.hosts.values()}))
    return None
