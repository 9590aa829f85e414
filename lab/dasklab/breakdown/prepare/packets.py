"""Add to a repeat what packets showed: when the data of each fetch was on the wire."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from dasklab.breakdown.model.repeat import Repeat


def with_packets(repeat: Repeat, transfers: pd.DataFrame) -> Repeat:
    """Return the repeat with the first and the last byte of fetches as the capture shows them.

    Args:
        transfers: columns ``sender`` and ``receiver`` (names), and when the request, the first and the last
            byte of the data were on the wire (``request``, ``first_byte``, ``last_byte``). In order they
            belong to the fetches of the same pair.
    """
    fetches, names = repeat.fetches, repeat.places.nodes
    first_bytes, last_bytes = fetches.first_byte.copy(), fetches.last_byte.copy()
    order = np.argsort(fetches.start, kind="stable")
    for (sender, receiver), packets in transfers.sort_values("request").groupby(["sender", "receiver"]):
        if sender not in names or receiver not in names:
            continue
        of_pair = (fetches.sender == repeat.node(str(sender))) & (
            fetches.receiver == repeat.node(str(receiver))
        )
        pending = order[of_pair[order]].tolist()
        columns = (packets[name].tolist() for name in ("request", "first_byte", "last_byte"))
        for request, first_byte, last_byte in zip(*columns, strict=True):
            while pending and fetches.stop[pending[0]] < request:
                pending.pop(0)
            if pending and fetches.start[pending[0]] <= last_byte:
                first_bytes[pending[0]], last_bytes[pending[0]] = first_byte, last_byte
                pending.pop(0)
    return replace(repeat, fetches=replace(fetches, first_byte=first_bytes, last_byte=last_bytes))
