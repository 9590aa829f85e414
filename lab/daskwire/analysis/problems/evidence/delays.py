"""Which round trips may contain a delayed ACK, and how long a sender pauses."""

from __future__ import annotations

import numpy as np

from daskwire.base.arrays import Flags, Ints

PAUSE_NS = 100_000_000  # a longer gap is a pause of the sender; 64 kB take this long at 5 Mbit/s
DELAYED_ACK_NS = ((35_000_000, 60_000_000), (180_000_000, 220_000_000))  # ranges on common systems


def looks_delayed(rtt_ns: Ints) -> Flags:
    """Return which samples may contain a delayed ACK."""
    delayed = [(rtt_ns >= low) & (rtt_ns <= high) for low, high in DELAYED_ACK_NS]
    return np.asarray(np.any(delayed, axis=0))
