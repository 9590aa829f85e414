"""What can be done to a link inside its guest: each impairment once, in tc's words.

``IMPAIRMENTS`` is the one table: experiments take its keys, the guest's command makes tc's words of it and
reads them back by it, the judge compares by it, in the table's order. To add one, add a row here and a field
to ``dasklab.model.link.Link``.

Standard library only and few imports: the guests run this file too (role ``netem`` installs it beside
``dasklab_link.py``), and each import costs an emulated guest tens of milliseconds.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINE_RATE_MBIT = 10_000  # what a link without a cap is taken to carry
SUPER_FRAME = 70_000  # bytes that offloads may hand over as one: 64 KiB and its frames' headers
QUEUES = ("netem", "tbf")  # the kernel's queue disciplines that impair


class Unit:
    """A unit, told by the end of a key: its sign, what tc calls it, the factors there and back, its limit."""

    def __init__(self, sign: str, word: str, to_tc: float, from_tc: float, most: float | None) -> None:
        self.sign, self.word, self.to_tc, self.from_tc, self.most = sign, word, to_tc, from_tc, most


UNITS = {
    "ms": Unit("ms", "ms", 1, 1e3, 60_000),  # tc takes ms and tells s
    "pct": Unit("%", "%", 1, 100, 100),  # takes per cent and tells a share
    "mbit": Unit("Mbit/s", "bit", 1e6, 8e-6, None),  # takes bit/s and tells byte/s
}


class Impairment:
    """One impairment.

    ``word`` is netem's, empty for a value that stands right behind the one before it; ``place`` is where
    ``tc -j`` tells it among a netem's options; ``needs`` is the key without which netem cannot do it.
    """

    def __init__(self, key: str, word: str, place: tuple[str, str], needs: str = "") -> None:
        self.key, self.word, self.place, self.needs = key, word, place, needs
        self.unit = UNITS[key.rpartition("_")[2]]


IMPAIRMENTS = (
    Impairment("delay_ms", "delay", ("delay", "delay")),
    Impairment("jitter_ms", "", ("delay", "jitter"), needs="delay_ms"),
    Impairment("loss_pct", "loss", ("loss-random", "loss")),
    Impairment("reorder_pct", "reorder", ("reorder", "reorder"), needs="delay_ms"),
    Impairment("rate_mbit", "rate", ("rate", "rate")),
)
AMOUNTS = tuple(impairment.key for impairment in IMPAIRMENTS)
DIRECTIONS = ("egress", "ingress", "both")


def mistake(link: Mapping[str, Any]) -> str | None:
    """Why these amounts cannot be had together; None if they can."""
    for impairment in IMPAIRMENTS:
        if impairment.needs and link[impairment.key] and not link[impairment.needs]:
            return f"{impairment.key} needs a {impairment.needs} above 0: netem acts on delayed frames"
    return None


def sides(direction: str) -> tuple[str, ...]:
    """The directions that a link of this ``direction`` is about."""
    return ("egress", "ingress") if direction == "both" else (direction,)


def queued(link: Mapping[str, Any]) -> dict[str, float]:
    """The amounts that a link's queue is given; all 0 where it needs none.

    A policer has no queue. A rate makes netem keep frames in order; without one jitter would also reorder
    them, and two factors would be one: so jitter without reordering gets the line's rate.
    """
    amounts = {key: float(link[key]) for key in AMOUNTS}
    if link["policer"]:
        amounts["rate_mbit"] = 0
    if amounts["jitter_ms"] and not amounts["reorder_pct"] and not amounts["rate_mbit"]:
        amounts["rate_mbit"] = LINE_RATE_MBIT
    return amounts


def needs_netem(amounts: Mapping[str, float]) -> bool:
    """A rate by itself is the business of tbf, the plain shaper, which kernels have that lack netem."""
    return any(value for key, value in amounts.items() if key != "rate_mbit")


def words(amounts: Mapping[str, float], frames: int, mtu: int) -> list[str]:
    """tc's words for a queue of these amounts with room for so many ``frames``."""
    if not needs_netem(amounts):
        rate_mbit = amounts["rate_mbit"]
        return ["tbf", *bucket(rate_mbit), "limit", str(burst_bytes(rate_mbit) + frames * mtu)]
    found = ["netem", "limit", str(frames)]
    for impairment in IMPAIRMENTS:
        if amounts[impairment.key]:
            value = f"{amounts[impairment.key] * impairment.unit.to_tc:.6f}".rstrip("0").rstrip(".")
            found += [impairment.word] * bool(impairment.word) + [value + impairment.unit.word]
    return found


def bucket(rate_mbit: float) -> list[str]:
    """tc's words for a token bucket: 10 ms of the rate, and room for two 64 KiB super-frames."""
    return ["rate", f"{round(rate_mbit * 1e6)}bit", "burst", f"{burst_bytes(rate_mbit)}b"]


def burst_bytes(rate_mbit: float) -> int:
    """What a token bucket of this rate holds."""
    return max(131_072, math.ceil(rate_mbit * 1e6 / 8 * 0.01))


def read(kind: str, options: Mapping[str, Any]) -> dict[str, float]:
    """The amounts that one of QUEUES has, from its options as ``tc -j qdisc show`` tells them."""
    if kind == "tbf":
        return dict.fromkeys(AMOUNTS, 0.0) | {"rate_mbit": options["rate"] * UNITS["mbit"].from_tc}
    return {
        impairment.key: options.get(impairment.place[0], {}).get(impairment.place[1], 0)
        * impairment.unit.from_tc
        for impairment in IMPAIRMENTS
    }


def drops_at_once(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether a queue has no room to wait in, and so does what a policer does.

    tc tells the limit of a tbf's queue where that is less than the bucket, else how long a frame may wait.
    """
    return kind == "tbf" and "limit" in options
