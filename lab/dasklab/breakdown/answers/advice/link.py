"""Rules about the network: a slow link, and a faster one that is not used."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.answers.advice.rules import (
    DASK,
    DISTRIBUTED,
    AdviceRule,
    Measurements,
    Symptom,
    process,
)
from dasklab.breakdown.answers.bandwidth import LEAST_BYTES
from dasklab.breakdown.answers.bottlenecks import SLOW_BYTES_PER_S, busy_s
from dasklab.breakdown.answers.facts import FASTER
from dasklab.breakdown.model.arrays import Floats
from dasklab.breakdown.model.causes import LINK
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
    """Look at the rate of transfers that are large enough to have one."""
    fetches = repeat.fetches
    large = repeat.moved >= LEAST_BYTES
    seconds = (fetches.stop - fetches.start - fetches.serialise_s - fetches.deserialise_s)[large]
    return _rate("data", repeat.moved[large], seconds)


def _slow_graphs(repeat: Repeat) -> str:
    columns = np.array([(g.sent, g.received, g.nbytes) for g in repeat.graphs], float).reshape(-1, 3)
    departure, arrival, nbytes = columns[columns[:, 2] >= LEAST_BYTES].T
    return _rate("graphs", nbytes, arrival - departure - busy_s(repeat, departure, arrival))


def _rate(what: str, nbytes: Floats, seconds: Floats) -> str:
    rate = float(np.median(nbytes / np.maximum(seconds, 1e-9))) if len(nbytes) else np.inf
    return f"{what} moved at {8 * rate / 1e6:.0f} Mbit/s" if rate < SLOW_BYTES_PER_S else ""


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
        f"{DISTRIBUTED}/communications.html", _slow_link,
    ),
    AdviceRule(
        "wrong network interface", f"x {FASTER:.0f} as fast",
        "Start the scheduler and the workers with --interface.",
        f"{DASK}/deploying-hpc.html", _interface,
    ),
)  # fmt: skip
