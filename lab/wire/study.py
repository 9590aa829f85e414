"""What the 2019 study's own method would have counted: packets by the first op name found in them.

Its notebook looked, packet by packet, for the letters ``op`` followed by one of nine names in a fixed order,
took the first that matched, and called all other packets with payload "data". Beside ``composition`` this
shows the method's error: batches count once, split messages not at all, and the result changes with offloads.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lab.wire.schema import Table

if TYPE_CHECKING:
    from lab.wire.capture import Capture

NAMES = (  # in the order of the notebook
    "heartbeat_worker", "task-finished", "get_data", "delete-data", "add-keys",
    "steal-response", "compute-task", "key-in-memory", "steal-request",
)  # fmt: skip
# a name after "op", between them only a MessagePack length, which the notebook's decoding dropped
_PATTERN = re.compile(b"op[\x80-\xff]*(" + b"|".join(name.encode() for name in NAMES) + b")")


def packets_by_first_op(capture: Capture) -> Table:
    """Packets with payload by sender and first op found, "data" for the rest: source, op, packets.

    Looks at every captured payload byte: slower than all else here, and meant for the comparison only.
    """
    segments = capture.segments
    rows = np.flatnonzero(segments.captured)
    senders = capture.sources[segments.flow[rows]].tolist()
    count: Counter[tuple[str, str]] = Counter()
    places = zip(senders, segments.offset[rows].tolist(), segments.captured[rows].tolist(), strict=True)
    for sender, offset, size in places:
        found = {name.decode() for name in _PATTERN.findall(capture.memory.read(offset, size))}
        count[sender, next((name for name in NAMES if name in found), "data")] += 1
    pairs = sorted(count)
    return {
        "source": [source for source, _ in pairs],
        "op": [op for _, op in pairs],
        "packets": [count[pair] for pair in pairs],
    }
