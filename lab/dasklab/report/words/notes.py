"""What a reader must know about a run: suspicious and damaged trials, incomplete captures, impaired links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dasklab.model.files import Configured, Result
from dasklab.model.settings.nic import POLICED
from dasklab.results.run import Run, Trial
from dasklab.results.validity import completeness

RATE_METHODS = {
    POLICED: "the node drops frames above the rate of a capped guest (a policer)",
    "shape-ifb": "the node queues frames above the rate of a capped guest (a shaper)",
}
"""How a node limits what a guest sends, by its name in ``configured.json``."""


@dataclass(frozen=True)
class InvalidTrials:
    """Trials that left the statistics for the same reasons."""

    trials: list[str]
    status: str
    reasons: tuple[str, ...]


def invalid_trials(results: list[Result]) -> list[InvalidTrials]:
    """Group the trials that left the statistics by their reasons."""
    groups: dict[tuple[str, ...], InvalidTrials] = {}
    for result in results:
        if result.status != "ok":
            cause = (result.status, *result.reasons)
            group = groups.setdefault(cause, InvalidTrials([], result.status, result.reasons))
            group.trials.append(result.trial)
    return list(groups.values())


def damaged_trials(run: Run) -> Iterator[str]:
    """Yield a note for each trial that was left out because a file is damaged or missing."""
    for trial in run.damaged:
        yield f"{trial.name} was left out, its files are damaged: {trial.damage}."


def suspicious_trials(results: list[Result]) -> Iterator[str]:
    """Yield a note for each warning about a trial that is in the statistics."""
    for result in results:
        if result.status == "ok":
            yield from (f"Warning: {result.trial}: {warning}." for warning in result.warnings)


def rate_caps(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield how the node limited what guests sent, if any had a rate cap."""
    if any(nic.rate_mbit for trial in trials for nic in trial.requested.nics.values()):
        methods = {trial.configured.rate_method for trial in trials if trial.configured}
        yield from (RATE_METHODS.get(method, method) for method in sorted(filter(None, methods)))


def notes(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield notes about incomplete captures, and about how links were impaired."""
    incomplete: dict[str, list[str]] = {}
    for trial in trials:
        incomplete.setdefault(completeness.line(completeness.read(trial)), []).append(trial.name)
    yield from (f"{', '.join(names)}: {line}." for line, names in incomplete.items() if line)
    configured = {trial: trial.configured or Configured() for trial in trials}
    links = [link for c in configured.values() for host in c.hosts.values() for link in host.link]
    if any(link.policer and link.by == "tbf" for link in links):
        yield "A policer was a token bucket that holds one super-frame: its kernel has no act_police."
    lossy = [
        (c, host)
        for trial, c in configured.items()
        for host, link in trial.requested.links.items()
        if link.loss_pct
    ]
    if any(host in c.hosts and c.hosts[host].offloads.get("tso") for c, host in lossy):
        yield "Loss acted on super-packets: segmentation offload was on, one drop took up to 64 kB."
