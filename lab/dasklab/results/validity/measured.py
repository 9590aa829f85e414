"""Was the link what it was asked to be? Compares asked, configured and delivered; pure.

What is set is compared in ``dasklab.results.validity.configured``.

Each check returns reasons; a trial with a reason is invalid and leaves the statistics. What was delivered is
set against the run's baseline: an added delay is the RTT minus the baseline's, and where the baseline itself
scatters more than the tolerance (emulated guests do), its own spread is the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from dasklab.model.experiment import Tolerances
from dasklab.model.files import Configured, ConfiguredHost, Hosts, Measured, Probe, Queue, Throughput
from dasklab.model.impairments import sides
from dasklab.model.link import Link
from dasklab.model.nic import BURST_MBIT
from dasklab.model.trial import Trial
from dasklab.results.validity.configured import differences

GOODPUT = 1448 / 1514  # TCP payload of a full frame over what a rate limiter counts of it
MOST_SPREAD = 0.5  # a baseline may scatter more, but half of a cap is no longer that cap
DISTURBED = "the node: "  # a reason that begins so may be gone when the trial is repeated
CLOCK_S, CLOCK_SHARE = 10, 0.1  # machines are looked at within seconds of each other, not at once


@dataclass(frozen=True)
class Baseline:
    """What the baseline asks, and what its trials delivered between each pair: RTTs and TCP throughputs."""

    trial: Trial
    rtt_ms: dict[tuple[str, str], list[float]]
    mbit: dict[tuple[str, str], list[float]]


def baseline(trial: Trial, delivered: list[Measured]) -> Baseline:
    """Gather what several trials of the same cell delivered."""
    rtt: dict[tuple[str, str], list[float]] = {}
    mbit: dict[tuple[str, str], list[float]] = {}
    for document in delivered:
        for probe in document.rtt:
            rtt.setdefault((probe.src, probe.dst), []).extend(probe.samples_ms)
        for measured in _tcp(document):
            mbit.setdefault((measured.src, measured.dst), []).append(measured.mbit)
    return Baseline(trial, rtt, mbit)


def reasons(
    trial: Trial,
    configured: Configured | None,
    delivered: Measured | None,
    base: Baseline,
    allowed: Tolerances,
) -> list[str]:
    """All the reasons why the trial is invalid; none if it is as asked."""
    if configured is None:
        return ["nothing was read back of the links: configured.json is missing"]
    if delivered is None:
        return ["nothing was measured of the links: measured.json is missing"]
    return [
        *differences(trial, configured),
        *_netem(trial, configured, allowed),
        *_delay(trial, delivered, base, allowed),
        *_pings(trial, delivered, allowed),
        *_rate(trial, delivered, base, allowed),
    ]


def clocks(machines: Hosts) -> list[str]:
    """Hosts whose clock ran at another speed than most between the looks before and after the runs.

    An emulated guest may guess its counter's frequency wrong; all that it times is then wrong by that factor.
    """
    seconds = {host: machine.seconds for host, machine in machines.hosts.items()}
    usual = median(seconds.values()) if seconds else 0
    return [
        f"{host}: its clock ran {taken / usual:.2f} times as fast as the others'"
        for host, taken in seconds.items()
        if abs(taken - usual) > max(CLOCK_S, CLOCK_SHARE * usual)
    ]


def stolen(machines: Hosts, allowed: Tolerances) -> list[str]:
    """A node that is a virtual machine itself, and whose CPU others took: times are theirs too."""
    share = machines.hypervisor.share_pct("steal_s")
    if share is None or share <= allowed.steal_pct:
        return []
    limit = f"at most {allowed.steal_pct:g} may be"
    return [f"{DISTURBED}others took {share:.0f} % of its CPU during the runs (steal), {limit}"]


def foreign(machines: Hosts, allowed: Tolerances) -> list[str]:
    """Other processes on the lab's node: they took CPU that the lab could have had, or made it wait."""
    node, reasons = machines.hypervisor, []
    if node.foreign_pct is not None and node.foreign_pct > allowed.foreign_pct:
        used = f"{node.foreign_pct:.0f} % of this node's CPU during the runs"
        reasons.append(f"{DISTURBED}other processes used {used}, at most {allowed.foreign_pct:g} may be")
    for what, share in node.pressure_pct.items():
        if share > allowed.pressure_pct:
            limit = f"at most {allowed.pressure_pct:g} may be"
            reasons.append(f"{DISTURBED}processes waited for {what} in {share:.0f} % of the time, {limit}")
    return reasons


def is_disturbed(reasons: Sequence[str]) -> bool:
    """Is a trial invalid only because others used its node? Then it is worth a repetition."""
    return bool(reasons) and all(reason.startswith(DISTURBED) for reason in reasons)


def added_delay_ms(trial: Trial, src: str, dst: str) -> float:
    """What the impairments asked for should add to the RTT between two hosts."""
    return sum(link.delay_ms for link in _round_trip(trial, src, dst))


def lost_share(trial: Trial, src: str, dst: str) -> float:
    """The share of round trips between two hosts that should be lost: each way is passed once."""
    return 1 - prod(1 - link.loss_pct / 100 for link in _round_trip(trial, src, dst))


def _round_trip(trial: Trial, src: str, dst: str) -> list[Link]:
    """The impairments that a round trip between two hosts passes, each as often as it does."""
    ends = ((src, dst), (dst, src))
    links = [(trial.links[host], peer) for host, peer in ends if host in trial.links]
    return [link for link, peer in links if link.peer in (None, peer) for _ in sides(link.direction)]


def cap_mbit(trial: Trial, src: str, dst: str) -> float:
    """The lowest rate asked for on the way from ``src`` to ``dst``; 0 is none."""
    caps = [trial.nics[host].rate_mbit for host in (src, dst) if host in trial.nics]
    caps += [link.rate_mbit for link in _one_way(trial, src, dst)]
    return min((cap for cap in caps if cap), default=0)


def _one_way(trial: Trial, src: str, dst: str) -> list[Link]:
    """The impairments that a frame from ``src`` to ``dst`` passes."""
    ends = ((src, dst, "egress"), (dst, src, "ingress"))
    links = [(trial.links[host], peer, way) for host, peer, way in ends if host in trial.links]
    return [link for link, peer, way in links if way in sides(link.direction) and link.peer in (None, peer)]


def _netem(trial: Trial, configured: Configured, allowed: Tolerances) -> Iterator[str]:
    """netem's own counters: loss inside its binomial interval, no drop where no loss was asked."""
    for host, found in configured.hosts.items():
        for queue in found.qdisc_after:
            if queue.kind == "netem":
                yield from _drops(host, trial.links.get(host, Link()), queue, found, allowed)


def _drops(host: str, link: Link, queue: Queue, found: ConfiguredHost, allowed: Tolerances) -> Iterator[str]:
    drops, tries = queue.drops, queue.drops + queue.packets
    if link.rate_mbit and not link.policer:
        return  # a full queue before a capped link drops frames too, as it should
    if not link.loss_pct:
        if drops:
            yield f"{host}: netem dropped {drops} frames though no loss was asked (its limit was too small)"
        return
    if _super_packets(found, queue) or not tries:
        return  # one drop event takes a super-packet of many segments: the counters cannot be compared
    from scipy.stats import binomtest  # a second of imports, for what few trials have

    interval = binomtest(drops, tries).proportion_ci(allowed.loss_confidence)
    if not interval.low <= link.loss_pct / 100 <= interval.high:
        share = 100 * drops / tries
        yield f"{host}: {link.loss_pct:g} % loss asked, netem dropped {share:.2f} % of {tries} frames"


def _super_packets(found: ConfiguredHost, queue: Queue) -> bool:
    """Are offloads on that hand this netem, at the link or the device behind it, many segments at once?"""
    at_link = queue.dev in (None, found.interface)
    return any(found.offloads.get(name) for name in (("tso", "gso") if at_link else ("gro", "lro")))


def _delay(trial: Trial, delivered: Measured, base: Baseline, allowed: Tolerances) -> Iterator[str]:
    for probe in delivered.rtt:
        src, dst, samples = probe.src, probe.dst, probe.samples_ms
        passed, before = _round_trip(trial, src, dst), _round_trip(base.trial, src, dst)
        asked = added_delay_ms(trial, src, dst) - added_delay_ms(base.trial, src, dst)
        reordered = [link.delay_ms for link in passed if link.reorder_pct]
        reference = base.rtt_ms.get((src, dst))
        if not (asked or reordered) or any(link.reorder_pct for link in before):
            continue
        if not reference or not samples:
            continue
        added = np.array(samples) - median(reference)
        if reordered:  # netem sends this share at once, without the delay
            late = added > asked - min(reordered) / 2
            share = prod(1 - link.reorder_pct / 100 for link in passed)
            if _unlikely(int(late.sum()), len(late), share, allowed):
                ahead = f"{(~late).sum()} of {len(late)} pings sent ahead"
                yield f"{_when(probe)}: {100 - 100 * share:.3g} % asked, {ahead}"
            added = added[late]
        low, high = np.quantile(reference, (0.05, 0.95))
        jitter = sum(link.jitter_ms for link in passed)
        tolerance = max(asked * allowed.delay_pct / 100, allowed.delay_ms, high - low, jitter)
        if len(added) and abs(median(added) - asked) > tolerance:
            yield f"{_when(probe)}: {asked:g} ms asked, {median(added):.2f} added (tolerance {tolerance:.2f})"


def _pings(trial: Trial, delivered: Measured, allowed: Tolerances) -> Iterator[str]:
    """Pings lost, on links where loss was asked, lie in its binomial interval; elsewhere none is lost."""
    for probe in delivered.rtt:
        sent, share = probe.pings, lost_share(trial, probe.src, probe.dst)
        lost = max(0, sent - len(probe.samples_ms))
        if sent and _unlikely(lost, sent, share, allowed):
            yield f"{_when(probe)}: {lost} of {sent} pings were lost, {100 * share:.3g} % loss was asked"


def _unlikely(hits: int, tries: int, share: float, allowed: Tolerances) -> bool:
    """Does this number of hits lie outside what chance makes of a share?"""
    if not share:
        return hits > 0
    from scipy.stats import binomtest

    return bool(binomtest(hits, tries, share).pvalue < 1 - allowed.loss_confidence)


def _when(probe: Probe) -> str:
    return f"{probe.src} to {probe.dst}, {probe.phase} the runs"


def _rate(trial: Trial, delivered: Measured, base: Baseline, allowed: Tolerances) -> Iterator[str]:
    for probe in _tcp(delivered):
        src, dst, mbit = probe.src, probe.dst, probe.mbit
        cap = cap_mbit(trial, src, dst)
        reference = base.mbit.get((src, dst))
        if not cap or not reference:
            continue
        burst = BURST_MBIT / probe.seconds if probe.seconds else 0
        if mbit > cap * (1 + allowed.rate_pct / 100) + burst:
            yield f"{src} to {dst}: a cap of {cap:g} Mbit/s was asked, {mbit:.1f} went through"
        # TCP does not fill a link with losses or a long way, nor one whose cap drops what is too much
        impaired = any(link.delay_ms or link.loss_pct for link in trial.links.values())
        impaired |= any(link.policer for link in _one_way(trial, src, dst))
        spread = min(MOST_SPREAD, (max(reference) - min(reference)) / median(reference))
        lowest = cap * GOODPUT * (1 - max(allowed.rate_pct / 100, spread))
        binds = min(reference) > cap
        if binds and not impaired and trial.bridge == "learning" and mbit < lowest:
            yield f"{src} to {dst}: a cap of {cap:g} Mbit/s was asked, only {mbit:.1f} went through"


def _tcp(delivered: Measured) -> list[Throughput]:
    return [probe for probe in delivered.throughput if probe.proto == "tcp"]
