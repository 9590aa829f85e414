"""Rules about the network: a slow link, and a faster one that is not used."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice import pages
from dasklab.breakdown.answers.advice.rules import AdviceRule, Measurements, Symptom, process
from dasklab.breakdown.answers.bandwidth import LEAST_BYTES
from dasklab.breakdown.answers.facts.facts import FASTER
from dasklab.breakdown.assign.transfers import SLOW_BYTES_PER_S, busy_s
from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.causes import LINK
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import Repeat

SLOW_MESSAGE_S, LEAST_MESSAGES = 0.005, 20  # of fewer, all may carry large arguments
MANY_RETRANSMITTED = 100  # segments


def _slow_link(case: Measurements) -> Symptom | None:
    evidence = _slow_data(case.repeat) or _slow_graphs(case.repeat) or _slow_messages(case.repeat)
    if not evidence:
        return None
    seconds, place = case.bottleneck(LINK)
    return Symptom(
        seconds,
        f"The network took {seconds:.1f} s {case.length}, most of it at {process(place)}: {evidence}"
        f"{_retransmitted(case)}",
    )


def _slow_data(repeat: Repeat) -> str:
    """Look at transfers that are large enough to have a rate; those of one receiver share its link."""
    fetches = repeat.fetches
    large = np.flatnonzero(repeat.moved >= LEAST_BYTES)
    stop = fetches.stop - fetches.deserialise_s
    start = np.minimum(np.fmax(fetches.start, fetches.serve_start) + fetches.serialise_s, stop)
    rates = [
        repeat.moved[mine].sum() / max(1e-9, _together_s(start[mine], stop[mine]))
        for node in np.unique(fetches.receiver[large]).tolist()
        for mine in [large[fetches.receiver[large] == node]]
    ]
    return _slow("data", float(np.median(rates))) if rates else ""


def _slow_graphs(repeat: Repeat) -> str:
    """Look at the time for which large graphs were under way, and at all graphs that shared the link then."""
    columns = np.array([(g.sent, g.received, g.nbytes) for g in repeat.graphs], float).reshape(-1, 3)
    departure, arrival, nbytes = columns.T
    arrival = np.maximum(departure, arrival - busy_s(repeat, departure, arrival))
    large = nbytes >= LEAST_BYTES
    if not large.any():
        return ""
    same_link = np.zeros(len(nbytes), np.int64)
    moved = IntervalSets(same_link[large], departure[large], arrival[large])
    share = np.nan_to_num(moved.within(same_link, departure, arrival) / np.maximum(arrival - departure, 1e-9))
    return _slow("graphs", float((nbytes * np.clip(share, large, 1.0)).sum()) / max(1e-9, moved.total_s))


def _together_s(start: Floats, stop: Floats) -> float:
    """Return for how long at least one of some transfers was under way."""
    return IntervalSets(np.zeros(len(start), np.int64), start, stop).total_s


def _slow(what: str, bytes_per_s: float) -> str:
    return f"{what} moved at {8 * bytes_per_s / 1e6:.0f} Mbit/s" if bytes_per_s < SLOW_BYTES_PER_S else ""


def _slow_messages(repeat: Repeat) -> str:
    """Look at the fastest 10 % of messages: a busy process delays many of them, a link delays all."""
    stamps = repeat.tasks.stamps
    length = stamps["arrived"] - stamps["sent"]
    length = length[~np.isnan(length)]
    fast = float(np.quantile(length, 0.1)) if len(length) >= LEAST_MESSAGES else 0.0
    return f"messages to workers took at least {1e3 * fast:.0f} ms" if fast >= SLOW_MESSAGE_S else ""


def _retransmitted(case: Measurements) -> str:
    segments = case.facts.retransmitted
    most = max(segments, key=segments.__getitem__, default="")
    if not most or segments[most] < MANY_RETRANSMITTED:
        return ""
    return f"; the host of {most} sent {segments[most]:.0f} TCP segments again"


def _interface(case: Measurements) -> Symptom | None:
    other = case.facts.slower_interface
    if other is None:
        return None
    seconds, _ = case.bottleneck(LINK)
    return Symptom(
        seconds,
        f"The network took {seconds:.1f} s {case.length}, and {other.worker} uses {other.used}"
        f" ({other.used_mbit:.0f} Mbit/s) although {other.faster} has {other.faster_mbit:.0f} Mbit/s",
    )


RULES = (
    AdviceRule(
        "slow link", f"{8 * SLOW_BYTES_PER_S / 1e6:.0f} Mbit/s, or {1e3 * SLOW_MESSAGE_S:.0f} ms",
        "Check that link: its speed, its losses, and what else uses it.",
        pages.NONE, _slow_link, (LINK,),
    ),
    AdviceRule(
        "wrong network interface", f"x {FASTER:.0f} as fast",
        "Start the scheduler and the workers with --interface.",
        pages.INTERFACES, _interface, (LINK,),
    ),
)  # fmt: skip
