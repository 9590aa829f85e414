"""The panel of transfers: each fetch of data from one worker to another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.lanes import assign_lanes
from dasklab.breakdown.model.repeat import Repeat
from dasklab.model.forms.number_format import format_number, format_quantity
from dasklab.report.drawings.timeline.plain import DATA, IDLE, Texts, direction, rectangles
from dasklab.report.drawings.timeline.rectangles import Panel

MAX_PAIRS = 30  # beyond this there is a row for each receiver
MAX_NAMED_KEYS = 3


def transfers_panel(repeat: Repeat) -> Panel:
    """Show each fetch in the row of its pair of workers; those that overlap lie above each other."""
    fetches, names = repeat.fetches, repeat.places.nodes
    pair = fetches.receiver * len(names) + fetches.sender
    by_pair = len(np.unique(pair)) <= MAX_PAIRS
    codes, row = np.unique(pair if by_pair else fetches.receiver, return_inverse=True)
    rows = [
        direction(names[code % len(names)], names[code // len(names)])
        if by_pair
        else direction("", names[code])
        for code in codes.tolist()
    ]
    low, high = _stacked(row, fetches.start, fetches.stop)
    descriptions = Texts()
    what = [
        descriptions.code(f"{'refused, busy: ' if busy else ''}from {names[sender]} to {names[receiver]}")
        for sender, receiver, busy in zip(
            fetches.sender.tolist(), fetches.receiver.tolist(), fetches.busy.tolist(), strict=True
        )
    ]
    some = rectangles(repeat, row, fetches.start, fetches.stop, np.array(what, np.int64), (low, high))
    colour = np.where(fetches.busy, IDLE, DATA)
    details = [_amount(repeat, number) for number in range(len(fetches))]
    return Panel("Transfers", rows, replace(some, colour=colour), descriptions.texts, details)


def _amount(repeat: Repeat, fetch: int) -> str:
    """Describe what a fetch brought: ``2.10 MB, 45.0 Mbit/s: x, y, z and 4 more``."""
    keys = [repeat.keys[key] for key in repeat.fetched[fetch]]
    names = ", ".join(keys[:MAX_NAMED_KEYS])
    more = f" and {len(keys) - MAX_NAMED_KEYS} more" if len(keys) > MAX_NAMED_KEYS else ""
    seconds = float(repeat.fetches.stop[fetch] - repeat.fetches.start[fetch])
    moved = float(repeat.moved[fetch])
    rate = f", {format_quantity(8e-6 * moved / seconds, 'Mbit/s')}" if seconds > 0 and moved else ""
    return f"{format_number(moved / 1e6)} MB{rate}: {names}{more}"


def _stacked(row: Codes, start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    """Divide each row among what overlaps in it; return the low and the high ends."""
    lane = assign_lanes(row, start, stop)
    most = np.ones(int(row.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, row, lane + 1)
    return 0.06 + 0.88 * lane / most[row], 0.06 + 0.88 * (lane + 1) / most[row]
