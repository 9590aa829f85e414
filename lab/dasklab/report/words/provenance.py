"""When, where and with what a run was measured: the facts of the first screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from dasklab.model.experiments.experiment import Factor
from dasklab.model.files import Attempt, Campaign, Hosts
from dasklab.terminal import counted

ACCELERATORS = {
    "kvm": "KVM (hardware)",
    "tcg": "none: QEMU emulates the CPU (tcg), read ratios only",
    "lxc": "not needed: containers share the node's kernel",
}
KINDS = {"vm": "virtual machine", "container": "container"}
Fact = tuple[str, str]


def provenance(
    document: Campaign, attempts: Sequence[Attempt], hosts: Hosts | None, identity: Mapping[str, Any]
) -> Iterator[Fact]:
    """Yield names and texts: date, host, cores, accelerator, versions, workload."""
    yield "Simulated" if identity.get("simulated from") else "Measured", _dates(attempts)
    if hosts is not None:
        yield "Host", hosts.hypervisor.name or "unknown"
    yield "Machines", machines_of(document, hosts)
    if accelerator := identity.get("accelerator"):
        yield "Accelerator", ACCELERATORS.get(accelerator, accelerator)
    yield "Versions", _versions(hosts, identity)
    yield "Workload", workloads(document.experiment)


def _dates(attempts: Sequence[Attempt]) -> str:
    first = _utc(min(attempt.started for attempt in attempts))
    last = _utc(max(attempt.started + attempt.wall_s for attempt in attempts))
    end = f"{last:%H:%M}" if last.date() == first.date() else f"{last:%Y-%m-%d %H:%M}"
    return f"{first:%Y-%m-%d %H:%M} to {end} UTC"


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def machines_of(document: Campaign, hosts: Hosts | None) -> str:
    """Describe what the lab was made of: ``5 virtual machines, 2 cores each; containers in some cells``."""
    kinds = Counter(document.setup.guests.values())
    machines = ", ".join(counted(number, KINDS[kind]) for kind, number in kinds.items())
    machines = machines or counted(len(document.setup.hosts), "machine")
    if cpus := {facts.cpus for facts in hosts.hosts.values()} if hosts else set():
        few, most = min(cpus), max(cpus)
        machines += f", {counted(most, 'core') if few == most else f'{few} to {most} cores'}"
        machines += " each" if len(document.setup.hosts) > 1 else ""
    other = {
        guest["kind"]
        for settings in _levels(document.experiment)
        for guest in settings.get("guests", {}).values()
    } - set(kinds)
    return machines + "".join(f"; {KINDS[kind]}s in some cells" for kind in sorted(other))


def _versions(hosts: Hosts | None, identity: Mapping[str, Any]) -> str:
    packages = [
        f"{name} {identity[name]}"
        for name in ("dask", "distributed", "python", "numpy")
        if identity.get(name)
    ]
    kernels = sorted({facts.kernel for facts in hosts.hosts.values()}) if hosts else []
    return ", ".join([*packages, *(f"kernel {kernel}" for kernel in kernels)]) or "unknown"


def workloads(experiment: Mapping[str, Any]) -> str:
    """Describe what was computed: the experiment's workload, or those of its factors' levels."""
    varied = [settings["workload"] for settings in _levels(experiment) if settings.get("workload")]
    return "; ".join(map(_workload, varied or [experiment.get("workload") or {}]))


def _levels(experiment: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of each level of each factor."""
    for factor in experiment.get("factors", {}).values():
        yield from Factor.model_validate(factor).overrides().values()


def _workload(workload: Mapping[str, Any]) -> str:
    params = ", ".join(f"{name} {value}" for name, value in workload.get("params", {}).items())
    name = workload.get("name", "array_study")
    return f"{name}: {params}" if params else str(name)
