"""The registry of link impairments: what can be done to a link inside its guest.

``IMPAIRMENTS`` has one row per impairment. Experiments take the keys, the guest's command translates them
into tc's words and back, the verdict compares their amounts, and the simulation accepts those that it models;
all iterate over the registry in its order. To add an impairment, add a row here and a field to
``dasklab.model.settings.link.Link``.

Standard library only, and few imports: the guests run this file too (role ``netem``), and each import costs
an emulated guest tens of milliseconds.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINE_RATE_MBIT = 10_000  # the assumed rate of a link without a cap
SUPER_FRAME = 70_000  # bytes of the largest packet with segmentation offload: 64 KiB and headers
KERNEL_FEATURES = {"netem": "netem", "police": "policer (act_police)"}  # what a kernel may lack -> for people
QUEUES = ("netem", "tbf")  # the queue disciplines that can impair a link


class Unit:
    """The unit of an amount. The key of an impairment ends in it: ``delay_ms``.

    Args:
        sign: the unit as people write it.
        word: tc's name for the unit.
        to_tc: multiplies an amount for tc's command line.
        from_tc: multiplies what ``tc -j`` reports.
        most: the largest amount, None if there is no limit. The smallest is always 0: no impairment.
    """

    def __init__(self, sign: str, word: str, to_tc: float, from_tc: float, most: float | None) -> None:
        self.sign, self.word, self.to_tc, self.from_tc, self.most = sign, word, to_tc, from_tc, most


UNITS = {
    "ms": Unit("ms", "ms", 1, 1e3, 60_000),  # tc takes milliseconds and reports seconds
    "pct": Unit("%", "%", 1, 100, 100),  # tc takes per cent and reports a share
    "mbit": Unit("Mbit/s", "bit", 1e6, 8e-6, None),  # tc takes bit/s and reports byte/s
}


class Impairment:
    """One row of the registry.

    Args:
        key: the name in experiments and files. Its suffix is the unit.
        title: the name for people.
        word: netem's option. Jitter has no option of its own: its value comes right after the delay's.
        read_back: the two keys that lead to the amount in the netem options that ``tc -j`` reports.
        needs: the key of another impairment, which must be above 0 for netem to do this one.
        simulated: whether the simulation models it. The simulation refuses the others.
    """

    def __init__(
        self,
        key: str,
        title: str,
        word: str,
        read_back: tuple[str, str],
        *,
        needs: str = "",
        simulated: bool = False,
    ) -> None:
        self.key, self.title, self.word, self.read_back = key, title, word, read_back
        self.needs, self.simulated = needs, simulated
        self.unit = UNITS[key.rpartition("_")[2]]


IMPAIRMENTS = (
    Impairment("delay_ms", "delay", "delay", ("delay", "delay"), simulated=True),
    Impairment("jitter_ms", "jitter", "", ("delay", "jitter"), needs="delay_ms", simulated=True),
    Impairment("loss_pct", "loss", "loss", ("loss-random", "loss"), simulated=True),
    Impairment("reorder_pct", "reordering", "reorder", ("reorder", "reorder"), needs="delay_ms"),
    Impairment("rate_mbit", "rate limit", "rate", ("rate", "rate"), simulated=True),
)
AMOUNTS = tuple(impairment.key for impairment in IMPAIRMENTS)
DIRECTIONS = ("egress", "ingress", "both")


def find_mistake(link: Mapping[str, Any]) -> str | None:
    """Return why netem cannot combine these amounts; None if it can."""
    for impairment in IMPAIRMENTS:
        if impairment.needs and link[impairment.key] and not link[impairment.needs]:
            return f"{impairment.key} needs a {impairment.needs} above 0: netem acts on delayed frames"
    return None


def sides(direction: str) -> tuple[str, ...]:
    """Return the directions that a link's ``direction`` covers."""
    return ("egress", "ingress") if direction == "both" else (direction,)


def queued(link: Mapping[str, Any]) -> dict[str, float]:
    """Return the amounts for a link's queue; all are 0 where the link needs no queue.

    A policer has no queue. Without a rate, netem would also reorder frames that have jitter, and two factors
    would be one: so jitter without reordering gets the line rate, which keeps frames in order.
    """
    amounts = {key: float(link[key]) for key in AMOUNTS}
    if link["policer"]:
        amounts["rate_mbit"] = 0
    if amounts["jitter_ms"] and not amounts["reorder_pct"] and not amounts["rate_mbit"]:
        amounts["rate_mbit"] = LINE_RATE_MBIT
    return amounts


def needs_netem(amounts: Mapping[str, float]) -> bool:
    """Whether a queue must be netem. For a rate alone tbf is enough, which more kernels have."""
    return any(value for key, value in amounts.items() if key != "rate_mbit")


def kernel_features(link: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a link needs of the kernel besides token buckets: ``netem``, ``police``.

    A token bucket replaces a policer, but not on a link that also queues frames.
    """
    waiting = queued(link)
    polices = link["policer"] and link["rate_mbit"] and any(waiting.values())
    return ("netem",) * needs_netem(waiting) + ("police",) * bool(polices)


def tc_words(amounts: Mapping[str, float], frames: int, mtu: int) -> list[str]:
    """Return tc's words for a queue of these amounts that holds so many ``frames``."""
    if not needs_netem(amounts):
        rate_mbit = amounts["rate_mbit"]
        return ["tbf", *bucket(rate_mbit), "limit", str(burst_bytes(rate_mbit) + frames * mtu)]
    words = ["netem", "limit", str(frames)]
    for impairment in IMPAIRMENTS:
        if amounts[impairment.key]:
            value = f"{amounts[impairment.key] * impairment.unit.to_tc:.6f}".rstrip("0").rstrip(".")
            words += [impairment.word] * bool(impairment.word) + [value + impairment.unit.word]
    return words


def bucket(rate_mbit: float) -> list[str]:
    """Return tc's words for a token bucket: 10 ms of the rate, but at least two 64 KiB super-frames."""
    return ["rate", f"{round(rate_mbit * 1e6)}bit", "burst", f"{burst_bytes(rate_mbit)}b"]


def burst_bytes(rate_mbit: float) -> int:
    """Return the size of a token bucket of this rate."""
    return max(131_072, math.ceil(rate_mbit * 1e6 / 8 * 0.01))


def read_back(kind: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the amounts of one of ``QUEUES`` from its options in ``tc -j qdisc show``."""
    if kind == "tbf":
        return dict.fromkeys(AMOUNTS, 0.0) | {"rate_mbit": options["rate"] * UNITS["mbit"].from_tc}
    return {
        impairment.key: options.get(impairment.read_back[0], {}).get(impairment.read_back[1], 0)
        * impairment.unit.from_tc
        for impairment in IMPAIRMENTS
    }


def drops_at_once(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether a queue has no waiting space, and so acts as a policer.

    tc reports the limit of a tbf's queue if it is less than the bucket, else how long a frame may wait.
    """
    return kind == "tbf" and "limit" in options
