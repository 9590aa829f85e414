"""Byte counters and device names."""

from __future__ import annotations

from minipve.network import links


def test_counters_are_from_the_guests_view() -> None:
    text = (
        "Inter-|   Receive                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
        "tap100i0:     120       2    0    0    0     0          0         0     4300      12  0 0 0 0 0 0\n"
    )
    assert links.parse_counters(text) == {"tap100i0": (4300, 120)}
