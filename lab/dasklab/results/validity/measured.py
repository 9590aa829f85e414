"""Compare what probes measured with what the trial requests; pure.

Measurements are compared with the run's baseline: an added delay is the RTT minus the baseline's. Where the
baseline itself scatters more than the tolerance, as emulated guests do, its spread is the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Measured, Probe, Rtt, Throughput
from dasklab.model.settings.nic import BURST_MBIT
from dasklab.results.validity.binomial import is_unlikely
from dasklab.results.validity.routes import added_delay_ms, cap_mbit, lost_share, one_way, round_trip

GOODPUT = 1448 / 1514  # TCP payload of a full frame, divided by what a rate limiter counts of it
MOST_SPREAD = 0.5  # a baseline may scatter more, but half of a cap is not the cap


@dataclass(frozen=True)
class Baseline:
    """What the baseline requests, and what its trials measured between each pair of hosts."""

    trial: RequestedTrial
    rtt_ms: dict[tuple[str, str], list[float]]
    mbit: dict[tuple[str, str], list[float]]


def baseline(trial: RequestedTrial, measured: Sequence[Measured]) -> Baseline:
    """Collect the measurements of several trials of the baseline."""
    rtt: dict[tuple[str, str], list[float]] = {}
    mbit: dict[tuple[str, str], list[float]] = {}
    for document in measured:
        for probe in document.rtt:
            rtt.setdefault((probe.src, probe.dst), []).extend(probe.samples_ms)
        for transfer in _tcp(document):
            mbit.setdefault((transfer.src, transfer.dst), []).append(transfer.mbit)
    return Baseline(trial, rtt, mbit)


def differences(
    trial: RequestedTrial, measured: Measured, base: Baseline, allowed: Tolerances
) -> Iterator[str]:
    """Yield a line for each measurement that differs from what the trial requests."""
    for rtt in measured.rtt:
        yield from _delay(trial, rtt, base, allowed)
    for rtt in measured.rtt:
        yield from _lost_pings(trial, rtt, allowed)
    for throughput in _tcp(measured):
        yield from _rate(trial, throughput, base, allowed)


def _delay(trial: RequestedTrial, probe: Rtt, base: Baseline, allowed: Tolerances) -> Iterator[str]:
    src, dst, samples = probe.src, probe.dst, probe.samples_ms
    links, base_links = round_trip(trial, src, dst), round_trip(base.trial, src, dst)
    requested = added_delay_ms(trial, src, dst) - added_delay_ms(base.trial, src, dst)
    reordered = [link.delay_ms for link in links if link.reorder_pct]
    reference = base.rtt_ms.get((src, dst))
    if not (requested or reordered) or any(link.reorder_pct for link in base_links):
        return
    if not reference or not samples:
        return
    added = np.array(samples) - median(reference)
    if reordered:  # netem sends this share at once, without the delay
        is_late = added > requested - min(reordered) / 2
        share = prod(1 - link.reorder_pct / 100 for link in links)
        if is_unlikely(int(is_late.sum()), len(is_late), share, allowed.loss_confidence):
            ahead = f"{(~is_late).sum()} of {len(is_late)} pings were sent ahead"
            yield f"{_way(probe)}: requested {100 - 100 * share:.3g} % reordering, {ahead}"
        added = added[is_late]
    low, high = np.quantile(reference, (0.05, 0.95))
    jitter = sum(link.jitter_ms for link in links)
    tolerance = max(requested * allowed.delay_pct / 100, allowed.delay_ms, high - low, jitter)
    if len(added) and abs(median(added) - requested) > tolerance:
        measured = f"measured {median(added):.2f} ms (tolerance {tolerance:.2f} ms)"
        yield f"{_way(probe)}: requested {requested:g} ms of added delay, {measured}"


def _lost_pings(trial: RequestedTrial, probe: Rtt, allowed: Tolerances) -> Iterator[str]:
    """Lost pings lie in the binomial interval of the requested loss; without one, none is lost."""
    share = lost_share(trial, probe.src, probe.dst)
    lost = max(0, probe.pings - len(probe.samples_ms))
    if probe.pings and is_unlikely(lost, probe.pings, share, allowed.loss_confidence):
        requested = f"requested {100 * share:.3g} % loss"
        yield f"{_way(probe)}: {requested}, {lost} of {probe.pings} pings were lost"


def _rate(trial: RequestedTrial, probe: Throughput, base: Baseline, allowed: Tolerances) -> Iterator[str]:
    src, dst, mbit = probe.src, probe.dst, probe.mbit
    cap = cap_mbit(trial, src, dst)
    reference = base.mbit.get((src, dst))
    if not cap or not reference:
        return
    burst = BURST_MBIT / probe.seconds if probe.seconds else 0
    if mbit > cap * (1 + allowed.rate_pct / 100) + burst:
        yield f"{src} to {dst}: requested a cap of {cap:g} Mbit/s, measured {mbit:.1f} Mbit/s"
    # TCP does not fill a link that loses frames, has a long RTT, or a policer that drops what exceeds the
    # rate
    impaired = any(link.delay_ms or link.loss_pct for link in trial.links.values())
    impaired |= any(link.policer for link in one_way(trial, src, dst))
    spread = min(MOST_SPREAD, (max(reference) - min(reference)) / median(reference))
    lowest = cap * GOODPUT * (1 - max(allowed.rate_pct / 100, spread))
    binds = min(reference) > cap
    if binds and not impaired and trial.bridge == "learning" and mbit < lowest:
        yield f"{src} to {dst}: requested a cap of {cap:g} Mbit/s, measured only {mbit:.1f} Mbit/s"


def _way(probe: Probe) -> str:
    return f"{probe.src} to {probe.dst}, {probe.phase} the repeats"


def _tcp(measured: Measured) -> list[Throughput]:
    return [probe for probe in measured.throughput if probe.proto == "tcp"]
