"""Whether the node and the clocks were fit to measure with: steal time, foreign CPU, clock speed; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.files import Hosts

DISTURBED = "the node: "  # a reason that begins so may be gone when the trial is repeated
CLOCK_S, CLOCK_SHARE = 10, 0.1  # hosts are inspected within seconds of each other, not at the same moment


def clocks(hosts: Hosts) -> Iterator[str]:
    """Yield the hosts whose clock ran at another speed than most, between the readings before and after the
    repeats.

    An emulated guest may guess the frequency of its counter wrong; all its times are then wrong by that
    factor.
    """
    seconds = {host: facts.seconds for host, facts in hosts.hosts.items()}
    usual = median(seconds.values()) if seconds else 0
    for host, own in seconds.items():
        if abs(own - usual) > max(CLOCK_S, CLOCK_SHARE * usual):
            yield f"{host}: its clock ran at x {own / usual:.2f} the speed of the others"


def steal(hosts: Hosts, allowed: Tolerances) -> Iterator[str]:
    """Judge the steal time of a node that is itself a virtual machine: others took its CPU."""
    share = hosts.hypervisor.share_pct("steal_s")
    if share is not None and share > allowed.steal_pct:
        yield f"{DISTURBED}{share:.0f} % steal time during the repeats, allowed {allowed.steal_pct:g} %"


def foreign(hosts: Hosts, allowed: Tolerances) -> Iterator[str]:
    """Judge the processes outside the lab on its node: they used CPU, or made processes wait."""
    node = hosts.hypervisor
    if node.foreign_pct is not None and node.foreign_pct > allowed.foreign_pct:
        used = f"processes outside the lab used {node.foreign_pct:.0f} % of its CPU during the repeats"
        yield f"{DISTURBED}{used}, allowed {allowed.foreign_pct:g} %"
    for resource, share in node.pressure_pct.items():
        if share > allowed.pressure_pct:
            waited = f"processes waited for {resource} in {share:.0f} % of the time"
            yield f"{DISTURBED}{waited}, allowed {allowed.pressure_pct:g} %"


def is_disturbed(reasons: Sequence[str]) -> bool:
    """Whether a trial is invalid only because its node was busy. Then it is worth repeating."""
    return bool(reasons) and all(reason.startswith(DISTURBED) for reason in reasons)
