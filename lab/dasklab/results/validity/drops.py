"""Judge netem's drop counters: loss in its binomial interval, no drop if no loss was requested; pure."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Configured, ConfiguredHost, Queue
from dasklab.model.settings.link import Link
from dasklab.results.validity import binomial


def differences(trial: RequestedTrial, configured: Configured, allowed: Tolerances) -> Iterator[str]:
    """Yield a line for each netem that dropped otherwise than requested."""
    for host, configured_host in configured.hosts.items():
        for queue in configured_host.qdisc_after:
            if queue.kind == "netem":
                yield from _drops(host, trial.links.get(host, Link()), queue, configured_host, allowed)


def _drops(
    host: str, link: Link, queue: Queue, configured: ConfiguredHost, allowed: Tolerances
) -> Iterator[str]:
    drops, tries = queue.drops, queue.drops + queue.packets
    if link.rate_mbit and not link.policer:
        return  # the full queue in front of a capped link drops frames too, as it should
    if not link.loss_pct:
        if drops:
            yield f"{host}: netem dropped {drops} frames, but no loss was requested (its limit was too small)"
        return
    if _has_super_packets(configured, queue) or not tries:
        return  # one drop takes a super-packet of many segments: the counters cannot be compared
    if binomial.excludes(drops, tries, link.loss_pct / 100, allowed.loss_confidence):
        share = 100 * drops / tries
        yield f"{host}: requested {link.loss_pct:g} % loss, netem dropped {share:.2f} % of {tries} frames"


def _has_super_packets(configured: ConfiguredHost, queue: Queue) -> bool:
    """Whether offloads pass many segments at once to this netem, at the link or at the device behind it."""
    at_link = queue.dev in (None, configured.interface)
    return any(configured.offloads.get(name) for name in (("tso", "gso") if at_link else ("gro", "lro")))
